import { isNotModified, type Range, rangeOf } from '../../platform/http/conditional-request.ts'
import { StorageError } from './storage-error.ts'

/** What a reply tells of an object. */
export interface Described {
  name: string
  size: number
  mimetype: string
  cacheControl: string
  /** In its quotes. */
  etag: string
  lastModified: Date
  xRobotsTag: string
}

export type Plan =
  | { kind: 'not modified'; headers: Headers }
  | { kind: 'whole'; headers: Headers }
  | { kind: 'part'; headers: Headers; range: Range }

interface Options {
  /** Anybody may read it. */
  isPublic: boolean
  download?: string
  expires?: Date
}

/** A cache that serves several readers must not hand to one what was answered to another. */
export const BY_CREDENTIAL = 'authorization, apikey'

export function privately(cacheControl: string): string {
  const directives = cacheControl.split(',').map((directive) => directive.trim())
  const kept = directives.filter((directive) => !/^(public|s-maxage\b.*)$/i.test(directive))
  return kept.length === directives.length ? cacheControl : ['private', ...kept].join(', ')
}

/** What to answer to a request for an object's bytes; `expires` for those who come with a signed URL. */
export function planReply(request: Headers, object: Described, options: Options): Plan {
  const cacheControl = options.isPublic ? object.cacheControl : privately(object.cacheControl)
  const headers = new Headers({
    'accept-ranges': 'bytes',
    'content-type': servedType(object.mimetype),
    etag: object.etag,
    'last-modified': object.lastModified.toUTCString(),
    'x-robots-tag': object.xRobotsTag,
    'x-content-type-options': 'nosniff',
    ...(options.expires ? { expires: options.expires.toUTCString() } : { 'cache-control': cacheControl }),
    ...(!options.isPublic && !options.expires && { vary: BY_CREDENTIAL }),
  })
  if (!RUNS_NOTHING.test(object.mimetype)) headers.set('content-security-policy', SANDBOX)
  if (options.download !== undefined) headers.set('content-disposition', attachment(options.download))
  if (isNotModified(request, object)) {
    headers.delete('content-type')
    return { kind: 'not modified', headers }
  }
  const range = rangeOf(request, object.size, object)
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

/** A stored page must not run as one on the project's own address. */
const servedType = (mimetype: string) => (/text\/html/i.test(mimetype) ? 'text/plain' : mimetype)
/** The viewers of these would not show them in a sandbox. Whatever else there is, browsers take more for a page than says so. */
const RUNS_NOTHING = /^\s*((image|audio|video)\/(?!\S*(svg|xml))[\w.+-]+|application\/pdf)\s*(;[^,]*)?$/i
const SANDBOX = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"

/** `attachment;` alone keeps the name in the URL. */
function attachment(name: string): string {
  if (name === '') return 'attachment;'
  const encoded = encodeURIComponent(name.toWellFormed()).replace(
    /['()*]/g,
    (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`,
  )
  return `attachment; filename=${encoded}; filename*=UTF-8''${encoded}`
}
