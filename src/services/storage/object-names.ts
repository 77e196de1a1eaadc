import { StorageError } from './storage-error.ts'

const BUCKET_LENGTH_MAX = 100
const BUCKET = /^[A-Za-z0-9_!.*'() &$=@;:+,?-]+$/

export function checkBucketName(name: string): string {
  const fits = name.length <= BUCKET_LENGTH_MAX && BUCKET.test(name) && name.trim() === name
  // No URL can address `.` and `..`.
  if (!fits || name.endsWith('--table-s3') || name === '.' || name === '..') throw new StorageError('InvalidBucketName')
  return name
}

/** The limit of S3. */
const KEY_BYTES_MAX = 1024
// biome-ignore lint/suspicious/noControlCharactersInRegex: the pattern finds control characters
const UNSAFE = /[\0-\x1f\x7f\\]|[\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff]/u

/**
 * Accepts any Unicode text that URLs can carry. Refuses what a program on the way could read as another path: `.` and `..` segments,
 * control and direction characters, backslashes.
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
  if (!fits) throw new StorageError('InvalidKey', `Invalid key: ${shorten(key)}`)
  return key
}

const shorten = (key: string) => (key.length > 200 ? `${key.slice(0, 200)}…` : key)

/** Decodes a part of the path; refuses invalid percent-encoding. */
export function decodePath(raw: string): string {
  try {
    return decodeURIComponent(raw)
  } catch {
    throw new StorageError('InvalidKey', `Invalid key: ${shorten(raw)}`)
  }
}
