import type { Context } from 'hono'
import type { ContentfulStatusCode } from 'hono/utils/http-status'
import { isName } from '../../gateway/project-address.ts'
import { textIn } from '../incoming-upload.ts'
import type { StorageContext } from '../request.ts'
import type { Upload } from '../statements/resumable.ts'
import { storageAddressOf } from '../storage-address.ts'
import { StorageError, type StorageErrorCode } from '../storage-error.ts'
import type { Body } from './receive-bytes.ts'

/** Of the protocol for resumable uploads: https://tus.io/protocols/resumable-upload */
const VERSION = '1.0.0'
const EXTENSIONS = 'creation,creation-with-upload,creation-defer-length,termination,expiration'
const BYTES_TYPE = 'application/offset+octet-stream'
export const PATH = '/upload/resumable'

/** What a server says that is asked what it can do. */
export function announce(headers: Headers, sizeMax: number): void {
  headers.set('tus-resumable', VERSION)
  headers.set('tus-version', VERSION)
  headers.set('tus-extension', EXTENSIONS)
  headers.set('tus-max-size', String(sizeMax))
}

/** The words that clients look for. */
export const sizeExceeded = () => new StorageError('EntityTooLarge', 'Maximum size exceeded\n')

const LOCKED = 423
const TRY_AGAIN: readonly StorageErrorCode[] = ['SlowDown', 'RequestAborted']
const AWAY: readonly StorageErrorCode[] = ['ProjectUnavailable', 'DatabaseTimeout', 'BytesUnavailable', 'InternalError']

/**
 * Errors of this protocol are text, with the status that they have; but clients give up at most of those below 500, and where one looks how far
 * it has come they begin anew at any other than this.
 */
export function failure(c: Context, { code, body }: StorageError): Response {
  const isLocked = TRY_AGAIN.includes(code) || (c.req.method === 'HEAD' && AWAY.includes(code))
  // What the owner's own rules refuse they refuse again: no client should send all anew for it.
  const status = (isLocked ? LOCKED : code === 'DatabaseError' ? 400 : Number(body.statusCode)) as ContentfulStatusCode
  return c.text(body.message, status, { 'tus-resumable': VERSION })
}

export function requireVersion(c: StorageContext): void {
  c.header('tus-resumable', VERSION)
  if (c.req.header('tus-resumable') !== VERSION) throw new StorageError('VersionMismatch')
}

/** A client behind a proxy that knows few methods says in a header what it means. */
export const methodOf = (c: StorageContext): string =>
  (c.req.method === 'POST' && c.req.header('x-http-method-override')?.toUpperCase()) || c.req.method

export function bodyOf({ req }: StorageContext): Body {
  const length = req.header('content-length')
  return { stream: req.raw.body, length: length === undefined ? undefined : Number(length) }
}

export const hasBytes = (c: StorageContext): boolean => c.req.header('content-type') === BYTES_TYPE

export function offsetIn(c: StorageContext): number {
  const offset = wholeNumber(c, 'upload-offset')
  if (offset === null) throw new StorageError('InvalidRequest', 'Upload-Offset must be a whole number of bytes')
  return offset
}

/** Null where it is not known yet. */
export const lengthIn = (c: StorageContext): number | null => wholeNumber(c, 'upload-length')

/** Parallel parts of one object: without this refusal each of them would become an object of its own. */
export function refuseConcatenation({ req }: StorageContext): void {
  if (req.header('upload-concat') === undefined) return
  throw new StorageError('InvalidRequest', 'Upload-Concat is not supported: disable parallel uploads in the TUS client')
}

export function isLengthDeferred(c: StorageContext): boolean {
  const value = c.req.header('upload-defer-length')
  if (value !== undefined && value !== '1') throw new StorageError('InvalidRequest', 'Upload-Defer-Length must be 1')
  return value !== undefined
}

function wholeNumber(c: StorageContext, header: string): number | null {
  const value = c.req.header(header)
  if (value === undefined) return null
  const number = /^\d{1,16}$/.test(value) ? Number(value) : Number.NaN
  if (!Number.isSafeInteger(number))
    throw new StorageError('InvalidRequest', `${title(header)} must be a whole number of bytes`)
  return number
}

const title = (header: string) => header.replace(/(^|-)[a-z]/g, (letter) => letter.toUpperCase())

/** `Upload-Metadata`: names, each with base64 of its value, between commas. */
export function metadataIn(header: string): Map<string, string> {
  const entries = header.split(',').map((entry) => {
    const [name = '', value = '', ...more] = entry.trim().split(/ +/)
    if (name === '' || more.length > 0) throw wrongMetadata()
    try {
      return [name, textIn(value)] as const
    } catch {
      throw wrongMetadata()
    }
  })
  return new Map(entries)
}

const wrongMetadata = () =>
  new StorageError('InvalidRequest', 'Upload-Metadata must be names, each with base64 of its value')

/** Below the address that the client reached; in front of the Worker somebody else may have ended its TLS. */
export function locationOf(c: StorageContext, id: string): string {
  const { protocol, host, hostname, pathname } = new URL(c.req.url)
  const isSecure = protocol === 'https:' || (c.var.ctx.config.BASE_URL.startsWith('https:') && isName(hostname))
  const origin = `${isSecure ? 'https' : 'http'}://${host}`
  const path = storageAddressOf(c.req.raw, c.env)?.path.replace(/\/$/, '') ?? ''
  return `${origin}${pathname.replace(/\/$/, '').slice(0, -path.length)}${path}/${id}`
}

/** What clients read of an upload after each request. */
export function tell(c: StorageContext, { size, expires_at }: Upload, offset: number): void {
  c.header('upload-offset', String(offset))
  c.header('cache-control', 'no-store')
  if (offset !== size) c.header('upload-expires', new Date(expires_at).toUTCString())
}
