import {
  type Conditions,
  isNotModified,
  isPreconditionFailed,
  type Range,
  rangeOf,
} from '../../platform/http/conditional-request.ts'
import { StorageError } from './storage-error.ts'

/** The metadata of an object that a reply contains. */
export interface ResponseMetadata {
  name: string
  size: number
  mimetype: string
  cacheControl: string
  /** The ETag, quotes included. */
  etag: string
  lastModified: Date
  xRobotsTag: string
  contentEncoding?: string | undefined
}

export type Plan =
  | { kind: 'not modified'; headers: Headers }
  | { kind: 'whole'; headers: Headers }
  | { kind: 'part'; headers: Headers; range: Range }

interface Options {
  /** Whether anyone may read the object. */
  isPublic: boolean
  download?: string | undefined
  expires?: Date
}

/** A shared cache must not give one reader the reply to another. */
export const VARY_BY_CREDENTIAL = 'authorization, apikey'

/** Removes the directives that let shared caches store the reply, and adds `private` unless it or `no-store` is there. */
export function privateCacheControl(cacheControl: string): string {
  const directives = cacheControl.split(',').map((directive) => directive.trim())
  const allowed = directives.filter((directive) => !/^(public|s-maxage\b.*)$/i.test(directive))
  const isPrivate = allowed.some((directive) => /^(private|no-store)$/i.test(directive))
  return [...(isPrivate ? [] : ['private']), ...allowed].join(', ')
}

/** The reply to a signed URL has `expires` instead. It keeps only the directive that forbids proxies to change the bytes. */
function cacheControlOf({ cacheControl }: ResponseMetadata, { isPublic, expires }: Options): string | undefined {
  if (expires) return /(^|,)\s*no-transform\s*(,|$)/i.test(cacheControl) ? 'no-transform' : undefined
  return isPublic ? cacheControl : privateCacheControl(cacheControl)
}

/** Decides the status and headers of the reply to a download; `expires` is set for a signed URL. */
export function planReply(conditions: Conditions, object: ResponseMetadata, options: Options): Plan {
  if (isPreconditionFailed(conditions, object)) throw new StorageError('PreconditionFailed')
  const cacheControl = cacheControlOf(object, options)
  const headers = new Headers({
    'accept-ranges': 'bytes',
    'content-type': servedType(object.mimetype),
    etag: object.etag,
    'last-modified': object.lastModified.toUTCString(),
    'x-robots-tag': object.xRobotsTag,
    ...(object.contentEncoding && { 'content-encoding': object.contentEncoding }),
    ...(options.expires && { expires: options.expires.toUTCString() }),
    ...(cacheControl && { 'cache-control': cacheControl }),
    ...(!options.isPublic && !options.expires && { vary: VARY_BY_CREDENTIAL }),
  })
  if (!PLAIN_TYPE.test(object.mimetype)) headers.set('x-content-type-options', 'nosniff')
  if (!INERT_TYPE.test(object.mimetype)) headers.set('content-security-policy', SANDBOX)
  if (options.download !== undefined) headers.set('content-disposition', attachment(options.download))
  if (isNotModified(conditions, object)) {
    headers.delete('content-type')
    return { kind: 'not modified', headers }
  }
  const range = rangeOf(conditions, object.size, object)
  if (range === null) {
    throw new StorageError('InvalidRange', undefined, { headers: { 'content-range': `bytes */${object.size}` } })
  }
  if (!range) {
    headers.set('content-length', String(object.size))
    return { kind: 'whole', headers }
  }
  const { offset, length } = range
  headers.set('content-range', `bytes ${offset}-${offset + length - 1}/${object.size}`)
  headers.set('content-length', String(length))
  return { kind: 'part', headers, range }
}

/** Serves HTML as text: a stored page must not run on the project's own origin. */
const servedType = (mimetype: string) => (/text\/html/i.test(mimetype) ? 'text/plain' : mimetype)
/** The default type of `storage-js`, also for images and scripts: with `nosniff`, browsers would not let pages of other origins use them. */
const PLAIN_TYPE = /^\s*text\/plain\s*(;[^,]*)?$/i
/** Types that run no scripts, and whose viewers fail in a sandbox. All other types get one, because browsers may treat them as pages. */
const INERT_TYPE = /^\s*((image|audio|video)\/(?!\S*(svg|xml))[\w.+-]+|application\/pdf)\s*(;[^,]*)?$/i
const SANDBOX = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"

/** An empty name gives `attachment;`, with which browsers use the name in the URL. */
function attachment(name: string): string {
  if (name === '') return 'attachment;'
  const encoded = encodeURIComponent(name.toWellFormed()).replace(
    /['()*]/g,
    (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`,
  )
  return `attachment; filename=${encoded}; filename*=UTF-8''${encoded}`
}
