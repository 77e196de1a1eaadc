/** The headers of a request, by lower-case name. */
export type Conditions = Pick<Headers, 'get'>

interface Validators {
  /** ETag with its quotes. */
  etag: string
  lastModified?: Date
}

/** Whether the client has the current version (RFC 9110, 13.1.2 and 13.1.3: If-None-Match takes precedence over If-Modified-Since). */
export function isNotModified(headers: Conditions, { etag, lastModified }: Validators): boolean {
  const tags = headers.get('if-none-match')
  if (tags !== null) return tags.trim() === '*' || tagsIn(tags).includes(opaque(etag))
  const since = Date.parse(headers.get('if-modified-since') ?? '')
  return lastModified !== undefined && seconds(lastModified) <= Math.floor(since / 1000)
}

/**
 * Whether the client asks for another version (RFC 9110, 13.1.1 and 13.1.4: If-Match takes precedence over If-Unmodified-Since).
 * Only strong tags match.
 */
export function isPreconditionFailed(headers: Conditions, { etag, lastModified }: Validators): boolean {
  const tags = headers.get('if-match')
  if (tags !== null) return tags.trim() !== '*' && !strongTagsIn(tags).includes(etag)
  const since = Date.parse(headers.get('if-unmodified-since') ?? '')
  return lastModified !== undefined && seconds(lastModified) > Math.floor(since / 1000)
}

const strongTagsIn = (list: string): string[] => list.match(/(?<!W\/)"[^"]*"/g) ?? []

// A tag cannot contain quotes, but may contain commas.
const tagsIn = (list: string): string[] => (list.match(/"[^"]*"/g) ?? [list.trim()]).map(opaque)
const opaque = (tag: string) => tag.replace(/^W\//, '').replaceAll('"', '')
const seconds = (at: Date) => Math.floor(at.getTime() / 1000)

export interface Range {
  offset: number
  length: number
}

/**
 * Returns the requested range; undefined for the whole content, null if the range does not exist. If the condition of If-Range is
 * not met, the whole content is sent.
 */
export function rangeOf(headers: Conditions, size: number, validators: Validators): Range | undefined | null {
  const text = headers.get('range')
  if (text === null || !isSameVersion(headers.get('if-range'), validators)) return undefined
  const [, from = '', to = ''] = /^bytes=(\d*)-(\d*)$/i.exec(text.trim()) ?? []
  const offset = from === '' ? Math.max(size - Number(to), 0) : Number(from)
  const end = from === '' || to === '' ? size : Math.min(Number(to) + 1, size)
  const isSuffix = from === '' && to !== '' && Number(to) > 0
  if ((from === '' && !isSuffix) || offset >= end) return null
  return { offset, length: end - offset }
}

/** A date in If-Range never matches: two versions may have the same second, and a moved object may be older than the one it replaces. */
const isSameVersion = (condition: string | null, { etag }: Validators): boolean =>
  condition === null || condition.trim() === etag
