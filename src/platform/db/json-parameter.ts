/** The database's proxy takes 16 MiB; this leaves room for the statement and its other parameters. */
export const JSON_PARAMETER_BYTES_MAX = 15 * 1024 * 1024

/** Bytes of a JSON value as the parameter of a statement over HTTP: a text in JSON, so its quotes are escaped a second time. */
export const jsonParameterBytes = (value: unknown): number => Buffer.byteLength(JSON.stringify(JSON.stringify(value)))
