import { StorageError } from './storage-error.ts'

const SIZE = /^(\d+(?:\.\d+)?)(gb|mb|kb|b)$/i
const UNITS: Record<string, number> = { b: 1, kb: 1e3, mb: 1e6, gb: 1e9 }

export const SIZE_RULE = 'must be a number of bytes, or a size such as "5MB"'

/** Reads a bucket's size limit: a number of bytes, or text such as `1.5MB` (decimal units); null for no limit. */
export function parseSizeLimit(value: number | string | null, sizeBytesMax: number): number | null {
  if (value === null) return null
  const bytes = typeof value === 'number' ? value : bytesIn(value)
  if (bytes === undefined || !Number.isInteger(bytes) || bytes < 0) {
    throw new StorageError('InvalidRequest', `body/file_size_limit ${SIZE_RULE}`)
  }
  if (bytes > sizeBytesMax) throw new StorageError('EntityTooLarge')
  return bytes
}

function bytesIn(text: string): number | undefined {
  if (/^\d+$/.test(text)) return Number(text)
  const [, amount, unit = ''] = SIZE.exec(text) ?? []
  return amount === undefined ? undefined : Math.round(Number(amount) * (UNITS[unit.toLowerCase()] ?? 1))
}

const MIME = /^([\w\-+.]+\/([\w\-+.]+|\*)(;\s*charset=[\w-]+)?|[\w\-+./*]*\*)$/i
const MIME_LENGTH_MAX = 1000

/** Validates the types that a bucket accepts; null for all. */
export function checkMimeTypes(types: readonly string[] | null): string[] | null {
  const named = types?.filter((type) => type !== '') ?? []
  const wrong = named.find((type) => type.length > MIME_LENGTH_MAX || !MIME.test(type))
  if (wrong !== undefined) throw new StorageError('InvalidMimeType', `mime type ${wrong} is not supported`)
  return named.length === 0 ? null : named
}

/** Refuses a type that the bucket does not accept. Parameters are ignored: `text/plain;charset=UTF-8` is `text/plain`. */
export function checkMimeType(contentType: string, allowed: readonly string[] | null): void {
  if (!allowed || allowed.length === 0) return
  const type = essence(contentType)
  const isType = /^[\w.+*-]+(\/[\w.+*-]+)?$/.test(type) && !contentType.replaceAll(QUOTED_TEXT, '').includes(',')
  const fits = allowed
    .map(essence)
    .some((each) => each === '*/*' || each === type || (each.endsWith('*') && type.startsWith(each.slice(0, -1))))
  if (!isType || !fits) throw new StorageError('InvalidMimeType', `mime type ${contentType} is not supported`)
}

/** Texts in quotes may contain commas. A comma outside of them begins another type, and browsers use the last one. */
const QUOTED_TEXT = /"(?:[^"\\]|\\.)*"/g

const essence = (type: string) => (type.split(';')[0] ?? '').trim().toLowerCase()
