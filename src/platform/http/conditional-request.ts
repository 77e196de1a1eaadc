interface Validators {
  /** In its quotes. */
  etag: string
  lastModified?: Date
}

/** Whether the reader already has it (RFC 9110, 13.1.2 and 13.1.3: If-None-Match wins over If-Modified-Since). */
export function isNotModified(headers: Headers, { etag, lastModified }: Validators): boolean {
  const tags = headers.get('if-none-match')
  if (tags !== null) return tags.trim() === '*' || tagsIn(tags).includes(opaque(etag))
  const since = Date.parse(headers.get('if-modified-since') ?? '')
  return lastModified !== undefined && seconds(lastModified) <= Math.floor(since / 1000)
}

// A tag holds no quote, but may hold commas.
const tagsIn = (list: string): string[] => (list.match(/"[^"]*"/g) ?? [list.trim()]).map(opaque)
const opaque = (tag: string) => tag.replace(/^W\//, '').replaceAll('"', '')
const seconds = (at: Date) => Math.floor(at.getTime() / 1000)

export interface Range {
  offset: number
  length: number
}

/**
 * The one range that was asked for; undefined for the whole, null where there are no such bytes. Ranges of another version (If-Range) are
 * the whole of this one.
 */
export function rangeOf(headers: Headers, size: number, validators: Validators): Range | undefined | null {
  const text = headers.get('range')
  if (text === null || !isSameVersion(headers.get('if-range'), validators)) return undefined
  const [, from = '', to = ''] = /^bytes=(\d*)-(\d*)$/i.exec(text.trim()) ?? []
  const offset = from === '' ? Math.max(size - Number(to), 0) : Number(from)
  const end = from === '' || to === '' ? size : Math.min(Number(to) + 1, size)
  const isSuffix = from === '' && to !== '' && Number(to) > 0
  if ((from === '' && !isSuffix) || offset >= end) return null
  return { offset, length: end - offset }
}

/** A date proves nothing: two versions may share a second, and what is moved here may be older than what was. */
const isSameVersion = (condition: string | null, { etag }: Validators): boolean =>
  condition === null || condition.trim() === etag
