import { StorageError } from './storage-error.ts'

const BUCKET_LENGTH_MAX = 100
const BUCKET = /^[A-Za-z0-9_!.*'() &$=@;:+,?-]+$/

export function checkBucketName(name: string): string {
  const fits = name.length <= BUCKET_LENGTH_MAX && BUCKET.test(name) && name.trim() === name
  // No URL reaches the last two.
  if (!fits || name.endsWith('--table-s3') || name === '.' || name === '..') throw new StorageError('InvalidBucketName')
  return name
}

/** As S3 bounds its own. */
const KEY_BYTES_MAX = 1024
// biome-ignore lint/suspicious/noControlCharactersInRegex: these it is about
const UNSAFE = /[\0-\x1f\x7f\\]|[\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff]/u

/**
 * Any text that a URL can carry and a file system could hold, unicode included; nothing that some program on the way takes for
 * another path: no `.` or `..` segments, no control or direction characters, no backslash.
 */
export function checkKey(key: string): string {
  const segments = key.split('/')
  const fits =
    key !== '' &&
    key.isWellFormed() &&
    !UNSAFE.test(key) &&
    !segments.includes('.') &&
    !segments.includes('..') &&
    new TextEncoder().encode(key).length <= KEY_BYTES_MAX
  if (!fits) throw new StorageError('InvalidKey', `Invalid key: ${shown(key)}`)
  return key
}

const shown = (key: string) => (key.length > 200 ? `${key.slice(0, 200)}…` : key)

/** A part of the path as the client meant it; what cannot be decoded is no name. */
export function decodePath(raw: string): string {
  try {
    return decodeURIComponent(raw)
  } catch {
    throw new StorageError('InvalidKey', `Invalid key: ${shown(raw)}`)
  }
}
