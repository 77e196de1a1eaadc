/** Maximum size of a JSON parameter. SQL over HTTP accepts 16 MiB; this leaves room for the statement and its other parameters. */
export const JSON_PARAMETER_BYTES_MAX = 15 * 1024 * 1024

/** Size in bytes of a JSON value as the parameter of a statement over HTTP. The parameter is a JSON string, so its quotes are escaped twice. */
export const jsonParameterBytes = (value: unknown): number => Buffer.byteLength(JSON.stringify(JSON.stringify(value)))
