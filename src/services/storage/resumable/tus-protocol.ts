import type { Context, MiddlewareHandler } from 'hono'
import type { ContentfulStatusCode } from 'hono/utils/http-status'
import type * as z from 'zod'
import { isDnsName } from '../../gateway/project-address.ts'
import type { Storage } from '../database.ts'
import { textIn } from '../incoming-upload.ts'
import type { IncomingBody } from '../route.ts'
import type { CreateUploadHeaders } from '../schema.ts'
import type { Upload } from '../statements/resumable.ts'
import { StorageError, type StorageErrorCode } from '../storage-error.ts'

/** The TUS protocol for resumable uploads: https://tus.io/protocols/resumable-upload */
const VERSION = '1.0.0'
const EXTENSIONS = 'creation,creation-with-upload,creation-defer-length,termination,expiration'
export const BYTES_TYPE = 'application/offset+octet-stream'
export const TUS_PATH = '/upload/resumable'

/** Headers of the reply to OPTIONS, which describe what the server supports. */
export function setCapabilities(headers: Headers, sizeMax: number): void {
  headers.set('tus-resumable', VERSION)
  headers.set('tus-version', VERSION)
  headers.set('tus-extension', EXTENSIONS)
  headers.set('tus-max-size', String(sizeMax))
}

/** Clients recognize the error by this text. */
export const sizeExceeded = () => new StorageError('EntityTooLarge', 'Maximum size exceeded\n')

const LOCKED = 423
const RETRYABLE: readonly StorageErrorCode[] = ['SlowDown', 'RequestAborted']
const UNAVAILABLE: readonly StorageErrorCode[] = [
  'ProjectUnavailable',
  'ProjectPaused',
  'DatabaseTimeout',
  'BytesUnavailable',
  'InternalError',
]

/**
 * The status of an error. Retryable errors get 423, because clients give up at most other statuses below 500. After a failed HEAD, they
 * start a new upload unless its status was 423.
 */
export function tusStatusOf(method: string, error: StorageError): number {
  const { code, body } = error
  if (RETRYABLE.includes(code) || (method === 'HEAD' && UNAVAILABLE.includes(code))) return LOCKED
  // 400 for errors of the owner's triggers and constraints: a retry, which clients do after 500, would fail again.
  return code === 'DatabaseError' ? 400 : Number(body.statusCode)
}

/** Renders an error as TUS clients expect it: text, with the status of `tusStatusOf`. */
export const renderTusError = (c: Context, error: StorageError): Response =>
  c.text(error.message, tusStatusOf(c.req.method, error) as ContentfulStatusCode, {
    ...error.headers,
    'tus-resumable': VERSION,
  })

export const isTusPath = (path: string): boolean => path.startsWith(TUS_PATH)

/** Requires the version of the protocol, and names it in the reply. `renderTusError` names it in errors. */
export const requireVersion: MiddlewareHandler = async (c, next) => {
  if (c.req.header('tus-resumable') !== VERSION) {
    throw new StorageError('VersionMismatch', undefined, { headers: { 'tus-version': VERSION } })
  }
  await next()
  c.res.headers.set('tus-resumable', VERSION)
}

/** The method that a POST stands for: some proxies block PATCH and DELETE. */
export const overriddenMethod = ({ headers }: Request): string | undefined =>
  headers.get('x-http-method-override')?.toUpperCase()

export const hasBytes = ({ type }: IncomingBody): boolean => type === BYTES_TYPE

type TusHeaders = z.output<typeof CreateUploadHeaders>

export function offsetIn({ 'upload-offset': value }: { 'upload-offset'?: string | undefined }): number {
  const offset = wholeNumber('upload-offset', value)
  if (offset === null)
    throw new StorageError('InvalidRequest', 'Invalid Upload-Offset: must be a whole number of bytes')
  return offset
}

/** The length of the whole upload; null if the client does not know it yet. */
export const lengthIn = ({ 'upload-length': value }: Pick<TusHeaders, 'upload-length'>): number | null =>
  wholeNumber('upload-length', value)

/** The token of a signed URL for uploads. */
export function signatureIn({ 'x-signature': token }: Pick<TusHeaders, 'x-signature'>): string {
  if (!token) throw new StorageError('InvalidRequest', 'Missing x-signature header')
  return token
}

/** Refuses parallel uploads of one object, whose parts would otherwise become objects of their own. */
export function refuseConcatenation(headers: TusHeaders): void {
  if (headers['upload-concat'] === undefined) return
  throw new StorageError(
    'InvalidRequest',
    'Invalid Upload-Concat: parallel uploads are not supported, disable them in the TUS client',
  )
}

export function isLengthDeferred({ 'upload-defer-length': value }: TusHeaders): boolean {
  if (value !== undefined && value !== '1')
    throw new StorageError('InvalidRequest', 'Invalid Upload-Defer-Length: must be 1')
  return value !== undefined
}

function wholeNumber(header: string, value: string | undefined): number | null {
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
export function locationOf({ ctx }: Storage, url: string, id: string): string {
  const { protocol, host, hostname, pathname } = new URL(url)
  const isSecure = protocol === 'https:' || (ctx.config.BASE_URL.startsWith('https:') && isDnsName(hostname))
  return `${isSecure ? 'https' : 'http'}://${host}${pathname.replace(/\/$/, '')}/${id}`
}

/** Headers that clients read after each request of an upload. */
export const uploadHeaders = ({ size, expires_at }: Upload, offset: number) => ({
  'upload-offset': String(offset),
  'cache-control': 'no-store',
  ...(offset !== size && { 'upload-expires': new Date(expires_at).toUTCString() }),
})
