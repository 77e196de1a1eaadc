import { EngineUnavailable, SqlError } from '../../engine/engine-errors.ts'
import { isBucketUnavailable } from '../../platform/blobs/bucket.ts'
import { BodyInterrupted, BodyStalled } from '../../platform/blobs/chunk-reader.ts'
import { isUnavailable } from '../../platform/db/postgres-errors.ts'
import { InvalidCredential } from '../../platform/jwt/credential.ts'
import { INVALID_ROLE } from '../gateway/credentials.ts'
import { PAUSED } from '../gateway/paused.ts'
import { FormMalformed } from './form-parts.ts'

interface Entry {
  /** The status in the body. Clients expect HTTP 400 for nearly all errors, and this field to tell them apart. */
  statusCode: number
  /** The field `error`, if it is not the code. */
  tag?: string
  message: string
  /** The HTTP status, if it is not 400. */
  http?: 403 | 404 | 412 | 416 | 429 | 499 | 500 | 503 | 540 | 544
}

/** All errors of the storage API, by code. */
const ERRORS = {
  NoSuchBucket: { statusCode: 404, tag: 'Bucket not found', message: 'Bucket not found' },
  NoSuchKey: { statusCode: 404, tag: 'not_found', message: 'Object not found' },
  NoSuchUpload: { statusCode: 404, message: 'The upload was not found' },
  NoSuchProject: { statusCode: 404, message: 'Project not found', http: 404 },
  NoSuchRoute: { statusCode: 404, tag: 'Not Found', message: 'Route not found', http: 404 },
  BucketAlreadyExists: { statusCode: 409, tag: 'Duplicate', message: 'The resource already exists' },
  KeyAlreadyExists: { statusCode: 409, tag: 'Duplicate', message: 'The resource already exists' },
  ResourceAlreadyExists: { statusCode: 409, tag: 'Duplicate', message: 'The resource already exists' },
  ResourceNotEmpty: { statusCode: 409, message: 'The bucket you tried to delete is not empty' },
  ResourceReferenced: { statusCode: 409, message: 'The resource is referenced by another one' },
  RelatedResourceNotFound: {
    statusCode: 404,
    tag: 'InvalidRequest',
    message: 'The related resource does not exist',
  },
  TooManyObjects: { statusCode: 409, tag: 'InvalidRequest', message: 'The bucket holds too many objects' },
  AccessDenied: { statusCode: 403, tag: 'Unauthorized', message: 'Access denied' },
  InvalidRole: { statusCode: 403, tag: 'Unauthorized', message: 'Access denied: Invalid role', http: 403 },
  InvalidJWT: { statusCode: 400, message: 'Invalid token' },
  InvalidSignature: { statusCode: 400, message: 'Invalid signature' },
  InvalidMimeType: { statusCode: 415, tag: 'invalid_mime_type', message: 'mime type is not supported' },
  EntityTooLarge: {
    statusCode: 413,
    tag: 'Payload too large',
    message: 'The object exceeded the maximum allowed size',
  },
  InvalidBucketName: { statusCode: 400, tag: 'Invalid Input', message: 'Bucket name invalid' },
  InvalidKey: { statusCode: 400, message: 'Invalid key' },
  InvalidRequest: { statusCode: 400, tag: 'Error', message: 'Invalid request' },
  InvalidParameter: { statusCode: 400, message: 'Invalid Parameter' },
  InvalidHeaderChar: { statusCode: 400, tag: 'invalid_header_char', message: 'Invalid character in the header' },
  InvalidXRobotsTag: { statusCode: 400, tag: 'invalid_x_robots_tag', message: 'Invalid X-Robots-Tag header' },
  OffsetConflict: { statusCode: 409, message: 'Upload-Offset conflict' },
  VersionMismatch: { statusCode: 412, message: 'Tus-Resumable must be 1.0.0' },
  InvalidContentType: { statusCode: 415, message: 'Content-Type must be application/offset+octet-stream' },
  FeatureNotEnabled: { statusCode: 409, message: 'The feature is not enabled for this resource' },
  PreconditionFailed: { statusCode: 412, message: 'The object is another version than the condition names', http: 412 },
  InvalidRange: { statusCode: 416, tag: 'invalid_range', message: 'invalid range provided', http: 416 },
  ResourceLocked: { statusCode: 423, message: 'The resource is locked' },
  SlowDown: {
    statusCode: 429,
    tag: 'too_many_connections',
    message: 'Too many connections issued to the database',
    http: 429,
  },
  DatabaseTimeout: { statusCode: 544, message: 'The connection to the database timed out', http: 544 },
  DatabaseReadOnly: { statusCode: 503, message: 'The database is read-only: try again when it accepts writes' },
  DatabaseSchemaMismatch: {
    statusCode: 503,
    message: 'The database lacks a table, column or function that storage or its policies use',
  },
  ProjectUnavailable: {
    statusCode: 503,
    message: 'The database of the project cannot be reached',
    http: 503,
  },
  ProjectPaused: { statusCode: PAUSED.status, message: PAUSED.message, http: PAUSED.status },
  BytesUnavailable: {
    statusCode: 503,
    message: 'The bytes of objects cannot be reached: try again shortly',
    http: 503,
  },
  DatabaseError: { statusCode: 500, message: 'The database refused the request', http: 500 },
  RequestAborted: {
    statusCode: 499,
    tag: 'Request aborted',
    message: 'The upload was interrupted: send it again',
    http: 499,
  },
  InternalError: { statusCode: 500, tag: 'Internal', message: 'Internal Server Error', http: 500 },
} as const satisfies Record<string, Entry>

const UNAVAILABLE: readonly StorageErrorCode[] = ['BytesUnavailable', 'ProjectUnavailable']

export type StorageErrorCode = keyof typeof ERRORS

/** The codes that clients see in place of our more precise ones. */
const PUBLIC: Partial<Record<StorageErrorCode, string>> = {
  RelatedResourceNotFound: 'InvalidRequest',
  TooManyObjects: 'InvalidRequest',
  InvalidRole: 'AccessDenied',
  InvalidHeaderChar: 'InvalidRequest',
  InvalidXRobotsTag: 'InvalidRequest',
}

export class StorageError extends Error {
  override name = 'StorageError'
  readonly code: StorageErrorCode
  /** Headers of the reply, in addition to those of every error. */
  readonly headers: Record<string, string>

  constructor(
    code: StorageErrorCode,
    message?: string,
    options: { cause?: unknown; headers?: Record<string, string> } = {},
  ) {
    super(message ?? ERRORS[code].message, options)
    this.code = code
    this.headers = options.headers ?? {}
  }

  get status() {
    const { http }: Entry = ERRORS[this.code]
    return http ?? 400
  }

  /** Logged errors have a cause that concerns the operator and is hidden from the client. */
  get isLogged() {
    return this.code === 'InternalError' || (UNAVAILABLE.includes(this.code) && this.cause !== undefined)
  }

  /** The body that clients of the storage API parse. */
  get body() {
    const { statusCode, tag }: Entry = ERRORS[this.code]
    const code = PUBLIC[this.code] ?? this.code
    return { statusCode: String(statusCode), error: tag ?? code, message: this.message, code }
  }

  static from(error: unknown): StorageError {
    if (error instanceof StorageError) return error
    if (error instanceof SqlError) return fromSqlError(error)
    if (error instanceof InvalidCredential) return new StorageError('AccessDenied', error.message)
    if (error instanceof BodyStalled || error instanceof BodyInterrupted) return new StorageError('RequestAborted')
    if (error instanceof FormMalformed) return new StorageError('InvalidRequest', `Malformed form: ${error.message}`)
    if (error instanceof EngineUnavailable) {
      return new StorageError(error.code === '53300' ? 'SlowDown' : 'ProjectUnavailable', undefined, { cause: error })
    }
    if (isBucketUnavailable(error)) return new StorageError('BytesUnavailable', undefined, { cause: error })
    // Failed sessions with a project's database throw EngineUnavailable, so this one was with the control database.
    if (isUnavailable(error)) {
      return new StorageError('ProjectUnavailable', 'The control plane is busy: try again shortly', { cause: error })
    }
    return new StorageError('InternalError', undefined, { cause: error })
  }
}

/** Handler of a rejection: rethrows an error that matches as one with this code, and any other as it is. */
export const throwAs = (code: StorageErrorCode, matches: (error: unknown) => boolean) => (error: unknown) => {
  throw matches(error) ? new StorageError(code, undefined, { cause: error }) : error
}

/** A trigger returned null, so that Postgres skipped the row without an error. */
export class RowSkipped extends StorageError {
  constructor() {
    super('AccessDenied', 'A trigger of the table skipped the row')
  }
}

const BY_SQLSTATE: Record<string, StorageErrorCode> = {
  '23505': 'ResourceAlreadyExists',
  '40001': 'ResourceLocked',
  '40P01': 'ResourceLocked',
  '55P03': 'ResourceLocked',
  '57014': 'DatabaseTimeout',
  '25006': 'DatabaseReadOnly',
  '22003': 'InvalidParameter',
  '22021': 'InvalidParameter',
  '22P02': 'InvalidParameter',
  '22P05': 'InvalidParameter',
  '54001': 'InvalidParameter',
  '53200': 'SlowDown',
  '42703': 'DatabaseSchemaMismatch',
  '42P01': 'DatabaseSchemaMismatch',
  '42883': 'DatabaseSchemaMismatch',
}

/** A database host that cannot return a result sends one of these codes, although the transaction may have been committed. */
const RESULT_LOST = ['53200', '54000']

/** Whether a statement that only reads returned more than the database host sends. */
export const isResultTooLarge = (error: unknown): boolean => error instanceof SqlError && error.code === '54000'

/** Whether nothing was written, as Postgres refused a statement or the session. After a lost connection the outcome is unknown. */
export const isRefused = (error: unknown): boolean =>
  (error instanceof SqlError && !RESULT_LOST.includes(error.code)) ||
  (error instanceof EngineUnavailable && /^(28|3D|53|55)/.test(error.code ?? ''))

/** Checks the constraint by name: constraints that the project's owner added have other meanings. */
export const isNameTaken = (error: unknown): boolean => violates(error, '23505', 'bucketid_objname')
export const isBucketTaken = (error: unknown): boolean =>
  violates(error, '23505', 'buckets_pkey') || violates(error, '23505', 'bname')
/** An object would have no bucket: the bucket does not exist, or is deleted while it has objects. */
export const isBucketKeyViolated = (error: unknown): boolean => violates(error, '23503', 'objects_bucketId_fkey')

const violates = (error: unknown, code: string, constraint: string) =>
  error instanceof SqlError && error.code === code && error.constraint === constraint

/** Errors that Postgres raises for a `role` claim; the empty name stands for a role that no token may claim. */
const FORBIDDEN_ROLE = /^(role "" does not exist|permission denied to set role ")/

function fromSqlError(error: SqlError): StorageError {
  const { code, message, detail = '' } = error
  if (FORBIDDEN_ROLE.test(message)) return new StorageError('AccessDenied', INVALID_ROLE, { cause: error })
  if (code === '42501') return new StorageError('AccessDenied', refusalOf(error), { cause: error })
  if (code === '23503') {
    const missing = detail.includes('is not present')
    return new StorageError(missing ? 'RelatedResourceNotFound' : 'ResourceReferenced', undefined, { cause: error })
  }
  const isOwnersTable = code === '23505' && error.schema !== 'storage'
  const known = isOwnersTable ? undefined : BY_SQLSTATE[code]
  if (known) return new StorageError(known, undefined, { cause: error })
  // Messages of the owner's functions and constraints are shown; those of Postgres itself are not.
  if (/^(P0|22|23)/.test(code) || isRaised(error)) return new StorageError('DatabaseError', message, { cause: error })
  return new StorageError('InternalError', undefined, { cause: error })
}

const BY_POLICY = 'new row violates row-level security policy'
/** Whether the WITH CHECK expressions of the policies refuse a row. Postgres evaluates them before foreign keys. */
export const isPolicyViolated = (error: unknown): boolean =>
  error instanceof SqlError && error.code === '42501' && error.message.startsWith(BY_POLICY)

/** The context that Postgres gives to an error that a function raised itself. */
const RAISED = /^PL\/pgSQL function .* at RAISE(\n|$)/
export const isRaised = ({ where = '' }: SqlError): boolean => RAISED.test(where)

/** Hides Postgres's own text, which names policies, tables and schemas; keeps the text of the owner's functions. */
function refusalOf(error: SqlError): string | undefined {
  const { message } = error
  if (isRaised(error)) return message
  return message.startsWith(BY_POLICY) ? BY_POLICY : undefined
}
