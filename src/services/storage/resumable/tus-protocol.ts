import type { Context } from 'hono'
import type { ContentfulStatusCode } from 'hono/utils/http-status'
import { isDnsName } from '../../gateway/project-address.ts'
import { textIn } from '../incoming-upload.ts'
import type { StorageContext } from '../request.ts'
import type { Upload } from '../statements/resumable.ts'
import { storageAddressOf } from '../storage-address.ts'
import { StorageError, type StorageErrorCode } from '../storage-error.ts'

export interface Body {
  stream: ReadableStream<Uint8Array> | null
  /** In bytes; undefined if unknown. */
  length: number | undefined
}

/** The TUS protocol for resumable uploads: https://tus.io/protocols/resumable-upload */
const VERSION = '1.0.0'
const EXTENSIONS = 'creation,creation-with-upload,creation-defer-length,termination,expiration'
const BYTES_TYPE = 'application/offset+octet-stream'
export const TUS_PATH = '/upload/resumable'

/** Headers of the reply to OPTIONS, which describe what the server supports. */
export function setCapabilities(headers: Headers, sizeMax: number): void {
  headers.set('tus-resumable', VERSION)
  headers.set('tus-version', VERSION)
  headers.set('tus-extension', EXTENSIONS)
  headers.set('tus-max-size', String(sizeMax))
}

/** Clients look for this text. */
export const sizeExceeded = () => new StorageError('EntityTooLarge', 'Maximum size exceeded\n')

const LOCKED = 423
const RETRYABLE: readonly StorageErrorCode[] = ['SlowDown', 'RequestAborted']
const UNAVAILABLE: readonly StorageErrorCode[] = [
  'ProjectUnavailable',
  'DatabaseTimeout',
  'BytesUnavailable',
  'InternalError',
]

/**
 * Errors of this protocol are text with their own status. Retryable ones get 423: clients give up at most other statuses below 500,
 * and after a failed HEAD they start a new upload unless it was a 423.
 */
export function renderTusError(c: Context, { code, body }: StorageError): Response {
  const isLocked = RETRYABLE.includes(code) || (c.req.method === 'HEAD' && UNAVAILABLE.includes(code))
  // 400 for errors of the owner's triggers and constraints: a retry, which clients do after 500, would fail again.
  const status = (isLocked ? LOCKED : code === 'DatabaseError' ? 400 : Number(body.statusCode)) as ContentfulStatusCode
  return c.text(body.message, status, { 'tus-resumable': VERSION })
}

export function requireVersion(c: StorageContext): void {
  c.header('tus-resumable', VERSION)
  if (c.req.header('tus-resumable') !== VERSION) throw new StorageError('VersionMismatch')
}

/** Clients behind a proxy that blocks PATCH and DELETE name the method in a header. */
export const methodOf = (c: StorageContext): string =>
  (c.req.method === 'POST' && c.req.header('x-http-method-override')?.toUpperCase()) || c.req.method

export function bodyOf({ req }: StorageContext): Body {
  const length = req.header('content-length')
  return { stream: req.raw.body, length: length === undefined ? undefined : Number(length) }
}

export const hasBytes = (c: StorageContext): boolean => c.req.header('content-type') === BYTES_TYPE

export function offsetIn(c: StorageContext): number {
  const offset = wholeNumber(c, 'upload-offset')
  if (offset === null)
    throw new StorageError('InvalidRequest', 'Invalid Upload-Offset: must be a whole number of bytes')
  return offset
}

/** Null if the client does not know it yet. */
export const lengthIn = (c: StorageContext): number | null => wholeNumber(c, 'upload-length')

/** Refuses parallel uploads of one object, whose parts would otherwise become objects of their own. */
export function refuseConcatenation({ req }: StorageContext): void {
  if (req.header('upload-concat') === undefined) return
  throw new StorageError(
    'InvalidRequest',
    'Invalid Upload-Concat: parallel uploads are not supported, disable them in the TUS client',
  )
}

export function isLengthDeferred(c: StorageContext): boolean {
  const value = c.req.header('upload-defer-length')
  if (value !== undefined && value !== '1')
    throw new StorageError('InvalidRequest', 'Invalid Upload-Defer-Length: must be 1')
  return value !== undefined
}

function wholeNumber(c: StorageContext, header: string): number | null {
  const value = c.req.header(header)
  if (value === undefined) return null
  const number = /^\d{1,16}$/.test(value) ? Number(value) : Number.NaN
  if (!Number.isSafeInteger(number))
    throw new StorageError('InvalidRequest', `Invalid ${title(header)}: must be a whole number of bytes`)
  return number
}

const title = (header: string) => header.replace(/(^|-)[a-z]/g, (letter) => letter.toUpperCase())

/** Parses `Upload-Metadata`: comma-separated names, each followed by its value in base64. */
export function metadataIn(header: string): Map<string, string> {
  const entries = header.split(',').map((entry) => {
    const [name = '', value = '', ...more] = entry.trim().split(/ +/)
    if (name === '' || more.length > 0) throw invalidMetadata()
    try {
      return [name, textIn(value)] as const
    } catch {
      throw invalidMetadata()
    }
  })
  return new Map(entries)
}

const invalidMetadata = () =>
  new StorageError(
    'InvalidRequest',
    'Invalid Upload-Metadata: must be comma-separated names, each with its value in base64',
  )

/** The URL of an upload on the host that the client used. It is https if a proxy in front of the Worker terminates TLS. */
export function locationOf(c: StorageContext, id: string): string {
  const { protocol, host, hostname, pathname } = new URL(c.req.url)
  const isSecure = protocol === 'https:' || (c.var.ctx.config.BASE_URL.startsWith('https:') && isDnsName(hostname))
  const origin = `${isSecure ? 'https' : 'http'}://${host}`
  const path = storageAddressOf(c.req.raw, c.env)?.path.replace(/\/$/, '') ?? ''
  return `${origin}${pathname.replace(/\/$/, '').slice(0, -path.length)}${path}/${id}`
}

/** Headers that clients read after each request of an upload. */
export function setUploadHeaders(c: StorageContext, { size, expires_at }: Upload, offset: number): void {
  c.header('upload-offset', String(offset))
  c.header('cache-control', 'no-store')
  if (offset !== size) c.header('upload-expires', new Date(expires_at).toUTCString())
}
