/** The error that Postgres reports for a statement; `position` counts characters from 1. */
export interface SqlErrorFields {
  severity?: string
  code: string
  message: string
  position?: number
  hint?: string
  detail?: string
  where?: string
  schema?: string
  table?: string
  column?: string
  constraint?: string
  /** Text of the failed statement, if the query has several. */
  statement?: string
}

/** The driver does not support this operation. */
export class UnsupportedByDriver extends Error {
  override name = 'UnsupportedByDriver'
}

/** The database provider refused the operation permanently; nothing has changed. */
export class EngineRefusal extends Error {
  override name = 'EngineRefusal'
}

/** The operation stopped before its next change because its fence refused: another caller has taken over. */
export class Superseded extends Error {
  override name = 'Superseded'
}

export class SqlError extends Error implements SqlErrorFields {
  override name = 'SqlError'
  declare readonly severity: string
  declare readonly code: string
  declare readonly position?: number
  declare readonly hint?: string
  declare readonly detail?: string
  declare readonly where?: string
  declare readonly schema?: string
  declare readonly table?: string
  declare readonly column?: string
  declare readonly constraint?: string
  declare readonly statement?: string

  constructor(fields: SqlErrorFields) {
    super(fields.message)
    Object.assign(this, fields, { severity: fields.severity ?? 'ERROR' })
  }
}

/** Whether the server or its machine is at fault, and not the statement: it lacks resources, cannot read or write, or has a bug. */
export const isServerFault = ({ code }: SqlError): boolean => /^(53|58|F0|XX)/.test(code)

export class SqlTimeout extends Error {
  override readonly name = 'SqlTimeout'
  readonly timeoutMs: number

  constructor(timeoutMs: number) {
    super(`The query was stopped after ${timeoutMs} ms`)
    this.timeoutMs = timeoutMs
  }
}

export class SqlResultTooLarge extends Error {
  override readonly name = 'SqlResultTooLarge'

  readonly sizeBytesMax: number

  constructor(sizeBytesMax: number) {
    super(`The result is larger than ${sizeBytesMax} bytes`)
    this.sizeBytesMax = sizeBytesMax
  }
}

/** No session could be opened: the database is unreachable, paused or unknown, or has too many connections. */
export class EngineUnavailable extends Error {
  override readonly name = 'EngineUnavailable'
  readonly code?: string

  constructor(message: string, options?: { code?: string; cause?: unknown }) {
    super(message, { cause: options?.cause })
    this.code = options?.code
  }
}

export const DATABASE_MISSING = 'the database does not exist'

export const databaseMissing = (cause?: unknown): EngineUnavailable =>
  new EngineUnavailable(DATABASE_MISSING, { code: '3D000', cause })

/** Another operation on the project is still running, perhaps for a caller that is gone: wait for it to end. */
export class EngineBusy extends EngineUnavailable {}

/** The statements with their values are larger than the database's proxy takes; it has run none. */
export class StatementsTooLarge extends EngineUnavailable {}

/** No machine has capacity for a new database; nothing has been created. */
export class NoCapacity extends EngineUnavailable {}
