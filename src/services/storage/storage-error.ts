import { EngineUnavailable, SqlError } from '../../engine/engine.ts'
import { isBucketUnavailable } from '../../platform/blobs/bucket.ts'
import { BodyInterrupted, BodyStalled } from '../../platform/blobs/chunk-reader.ts'
import { isUnavailable } from '../../platform/db/postgres-errors.ts'
import { ROLE_WANTED } from '../gateway/credentials.ts'
import { FormMalformed } from './form-parts.ts'

interface Entry {
  /** What the body says the status is; nearly all go out as HTTP 400, which clients of this API branch on. */
  statusCode: number
  /** The text of the field `error`, where it is not the code. */
  tag?: string
  message: string
  /** The status of the reply, where it is not 400. */
  http?: 403 | 404 | 416 | 429 | 499 | 500 | 503 | 544
}

/** Every failure that a client of the storage API can see, by its public code. */
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
  InvalidRange: { statusCode: 416, tag: 'invalid_range', message: 'invalid range provided', http: 416 },
  ResourceLocked: { statusCode: 423, message: 'The resource is locked' },
  SlowDown: { statusCode: 429, tag: 'too_many_connections', message: 'Too many connections: try again', http: 429 },
  DatabaseTimeout: { statusCode: 544, message: 'The connection to the database timed out', http: 544 },
  DatabaseReadOnly: { statusCode: 503, message: 'The database takes no changes at the moment' },
  DatabaseSchemaMismatch: { statusCode: 503, message: 'The storage schema of the database is not as expected' },
  ProjectUnavailable: { statusCode: 503, message: 'The database of the project cannot be reached', http: 503 },
  BytesUnavailable: { statusCode: 503, message: 'The bytes of objects cannot be reached', http: 503 },
  DatabaseError: { statusCode: 500, message: 'The database refused it', http: 500 },
  RequestAborted: {
    statusCode: 499,
    tag: 'Request aborted',
    message: 'The upload broke off before its end',
    http: 499,
  },
  InternalError: { statusCode: 500, tag: 'Internal', message: 'Internal Server Error', http: 500 },
} as const satisfies Record<string, Entry>

const UNAVAILABLE: readonly StorageErrorCode[] = ['BytesUnavailable', 'ProjectUnavailable']

export type StorageErrorCode = keyof typeof ERRORS

/** Codes that are ours to tell apart, and one to clients. */
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
  /** Of the reply, beside those of every error. */
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

  /** Whoever runs the installation wants the reason, of which the client is told nothing. */
  get isToBeLogged() {
    return this.code === 'InternalError' || (UNAVAILABLE.includes(this.code) && this.cause !== undefined)
  }

  /** What was wrong, as clients of the storage API parse it. */
  get body() {
    const { statusCode, tag }: Entry = ERRORS[this.code]
    const code = PUBLIC[this.code] ?? this.code
    return { statusCode: String(statusCode), error: tag ?? code, message: this.message, code }
  }

  static from(error: unknown): StorageError {
    if (error instanceof StorageError) return error
    if (error instanceof SqlError) return ofSql(error)
    if (error instanceof BodyStalled || error instanceof BodyInterrupted) return new StorageError('RequestAborted')
    if (error instanceof FormMalformed) return new StorageError('InvalidRequest', `Malformed form: ${error.message}`)
    if (error instanceof EngineUnavailable) {
      return new StorageError(error.code === '53300' ? 'SlowDown' : 'ProjectUnavailable', undefined, { cause: error })
    }
    if (isBucketUnavailable(error)) return new StorageError('BytesUnavailable', undefined, { cause: error })
    // The projects' own sessions come as EngineUnavailable: this one was the control plane's.
    if (isUnavailable(error)) {
      return new StorageError('ProjectUnavailable', 'The control plane is busy: try again shortly', { cause: error })
    }
    return new StorageError('InternalError', undefined, { cause: error })
  }
}

/** A trigger that returns null makes a statement do nothing, and Postgres says nothing of it. */
export class LeftOut extends StorageError {
  constructor() {
    super('AccessDenied', 'A trigger of the table left the row out')
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
  '42703': 'DatabaseSchemaMismatch',
  '42P01': 'DatabaseSchemaMismatch',
  '42883': 'DatabaseSchemaMismatch',
}

/** Nothing of it was written: Postgres refused a statement, or the session. Where the connection was lost nobody knows. */
export const isRefused = (error: unknown): boolean =>
  error instanceof SqlError || (error instanceof EngineUnavailable && /^(28|3D|53|55)/.test(error.code ?? ''))

/** Only the tables' own constraints tell of keys and buckets: what else the owner's do not allow is his to explain. */
export const isTaken = (error: unknown): boolean => breaks(error, '23505', 'bucketid_objname')
/** Also where a bucket that still has objects is to go. */
export const isWithoutBucket = (error: unknown): boolean => breaks(error, '23503', 'objects_bucketId_fkey')

const breaks = (error: unknown, code: string, constraint: string) =>
  error instanceof SqlError && error.code === code && error.constraint === constraint

/** What Postgres says of a `role` claim; no role has the empty name, which stands for one that no token may claim. */
const FORBIDDEN_ROLE = /^(role "" does not exist|permission denied to set role ")/

function ofSql(error: SqlError): StorageError {
  const { code, message, detail = '' } = error
  if (FORBIDDEN_ROLE.test(message)) return new StorageError('AccessDenied', ROLE_WANTED, { cause: error })
  if (code === '42501') return new StorageError('AccessDenied', refusalOf(error), { cause: error })
  if (code === '23503') {
    const missing = detail.includes('is not present')
    return new StorageError(missing ? 'RelatedResourceNotFound' : 'ResourceReferenced', undefined, { cause: error })
  }
  const isOwners = code === '23505' && error.schema !== 'storage'
  const known = isOwners ? undefined : BY_SQLSTATE[code]
  if (known) return new StorageError(known, undefined, { cause: error })
  // What the owner's functions and constraints say is for him to see.
  if (/^(P0|22|23)/.test(code) || isRaised(error)) return new StorageError('DatabaseError', message, { cause: error })
  return new StorageError('InternalError', undefined, { cause: error })
}

const BY_POLICY = 'new row violates row-level security policy'
/** Where Postgres says that a function itself raised it. */
const RAISED = /^PL\/pgSQL function .* at RAISE(\n|$)/
export const isRaised = ({ where = '' }: SqlError): boolean => RAISED.test(where)

/** Postgres's own words name policies, tables and schemas, which are not for whoever calls; what the owner's functions say is. */
function refusalOf(error: SqlError): string | undefined {
  const { message } = error
  if (isRaised(error)) return message
  return message.startsWith(BY_POLICY) ? BY_POLICY : undefined
}
