import type * as z from 'zod'
import { readChunks } from '../../platform/blobs/chunk-reader.ts'
import { discardBody } from '../../platform/blobs/discard-body.ts'
import type { Caller, Storage } from './database.ts'
import { readForm } from './form.ts'
import type { IncomingBody } from './route.ts'
import type { ReplaceHeaders } from './schema.ts'
import type { Place } from './statements/object-rows.ts'
import { StorageError } from './storage-error.ts'

/** The properties of an object that its client specifies. */
export interface Description {
  contentType: string
  cacheControl: string
  xRobotsTag?: string | undefined
  contentEncoding?: string | undefined
  /** JSON of an object. */
  userMetadata: string | null
}

export interface IncomingUpload {
  description: Description
  body: ReadableStream<Uint8Array> | undefined
  /** In bytes; undefined if it is not known before they are read. */
  size: number | undefined
  /** Upper bound of the size: the length of the request's body; undefined if that is not known. */
  sizeMax: number | undefined
  /** The final description, which includes form fields that followed the bytes. */
  complete(): Description
}

export interface UploadRequest {
  storage: Storage
  caller: Caller
  place: Place
  headers: z.output<typeof ReplaceHeaders>
  body: IncomingBody
}

/** Reads an upload: the bytes as the body, or a form that contains the file. */
export async function readIncoming({ body, headers }: UploadRequest): Promise<IncomingUpload> {
  const { stream, type: contentType = 'application/octet-stream', length } = body
  const xRobotsTag = robotsTagIn(headers['x-robots-tag'])
  if (/^multipart\/form-data\s*(;|$)/i.test(contentType)) return readFormIncoming(body, contentType, xRobotsTag)
  const description = {
    contentType: safeHeader(contentType),
    cacheControl: safeHeader(headers['cache-control'] ?? 'no-cache'),
    xRobotsTag,
    contentEncoding: contentEncodingIn(headers['content-encoding']),
    userMetadata: userMetadataIn(headers['x-metadata']),
  }
  const size = stream ? length : 0
  return { description, body: stream ?? undefined, size, sizeMax: size, complete: () => description }
}

async function readFormIncoming(
  { stream, length: sizeMax }: IncomingBody,
  formType: string,
  xRobotsTag: string | undefined,
): Promise<IncomingUpload> {
  const form = stream && (await readForm(formType, stream))
  if (!form?.file) throw new StorageError('InvalidRequest', 'No content provided')
  const { fields, file } = form
  const describe = () => ({ ...descriptionIn(fields, file.contentType), xRobotsTag })
  try {
    return { description: describe(), body: file.body, size: undefined, sizeMax, complete: describe }
  } catch (error) {
    discardBody(readChunks(file.body))
    throw error
  }
}

/** Reads the fields of a form, or the metadata of a resumable upload. */
export const descriptionIn = (fields: ReadonlyMap<string, string>, contentType: string): Description => ({
  contentType: safeHeader(fields.get('contentType') ?? contentType),
  cacheControl: cacheControlOf(fields.get('cacheControl')),
  contentEncoding: contentEncodingIn(fields.get('contentEncoding')),
  userMetadata: objectIn(fields.get('metadata') ?? fields.get('userMetadata')),
})

/** Reads the header `x-metadata`: base64 of a JSON object; anything else counts as an empty object. */
export function userMetadataIn(header: string | undefined): string | null {
  return header === undefined ? null : objectIn(decodeHeader(header))
}

function decodeHeader(header: string): string {
  try {
    return textIn(header)
  } catch {
    return '{}'
  }
}

/** Decodes base64 or base64url; throws if it is neither. */
export const textIn = (base64: string): string =>
  new TextDecoder().decode(Buffer.from(atob(base64.replaceAll('-', '+').replaceAll('_', '/')), 'latin1'))

/** Bound of the sum of all exponents: Postgres writes `1e100000` as 100,001 digits. */
const EXPONENTS_MAX = 1024 ** 2

/**
 * Returns the JSON text of an object, or `{}` for anything else. The text is not printed anew: a double cannot hold all numbers of
 * Postgres, and a visit of each value would take much longer.
 */
function objectIn(json: string | undefined): string | null {
  if (json === undefined) return null
  if (!isObjectText(json)) return '{}'
  if (exponentsIn(json) > EXPONENTS_MAX)
    throw new StorageError(
      'InvalidParameter',
      `Invalid metadata: the exponents of its numbers must add up to at most ${EXPONENTS_MAX}`,
    )
  return withoutNul(json)
}

function isObjectText(json: string): boolean {
  try {
    const value: unknown = JSON.parse(json)
    return typeof value === 'object' && value !== null && !Array.isArray(value)
  } catch {
    return false
  }
}

/** The sum of the exponents in valid JSON, without their signs. */
function exponentsIn(json: string): number {
  if (!/\de/i.test(json)) return 0
  const withoutTexts = json.replaceAll(/"(?:[^"\\]|\\.)*"/g, '')
  let sum = 0
  for (const [, exponent] of withoutTexts.matchAll(/\de[+-]?(\d+)/gi)) sum += Number(exponent)
  return sum
}

/** Removes escaped NUL characters, which Postgres cannot store. Other escapes match as a whole, so that `\\u0000` stays. */
const withoutNul = (json: string) =>
  json.includes('\\u0000') ? json.replaceAll(/\\u0000|(\\.)/g, (_, other = '') => other) : json

/** The `Cache-Control` header for a field that has a number of seconds, as most clients send it, or the header itself. */
const cacheControlOf = (value: string | undefined): string =>
  value === undefined ? 'no-cache' : /^\d+$/.test(value) ? `max-age=${value}` : safeHeader(value)

const HEADER_LENGTH_MAX = 1_000

/** Refuses a value that cannot be sent as a header, because each download returns it as one. */
export function safeHeader(value: string): string {
  if (value.length > HEADER_LENGTH_MAX || !/^[\x20-\x7e]*$/.test(value)) {
    throw new StorageError('InvalidHeaderChar')
  }
  return value
}

export const CONTENT_ENCODING = /^[\w-]{1,20}(, ?[\w-]{1,20}){0,9}$/

/** Returns the encoding of the bytes, with which each download is sent; undefined if they are not encoded. */
export function contentEncodingIn(value: string | null | undefined): string | undefined {
  if (!value || value === 'identity') return undefined
  if (CONTENT_ENCODING.test(value)) return value
  throw new StorageError('InvalidHeaderChar', `Invalid Content-Encoding header: ${value}`)
}

const ROBOTS_RULE =
  /^((\w+:\s*)?(all|noindex|nofollow|none|noarchive|nosnippet|noimageindex|notranslate|indexifembedded|max-(snippet|video-preview):\s*-?\d+|max-image-preview:\s*(none|standard|large)|unavailable_after:\s*[\w\s:+-]+))$/i

function robotsTagIn(value: string | undefined): string | undefined {
  if (value === undefined) return undefined
  if (
    safeHeader(value)
      .split(',')
      .every((rule) => ROBOTS_RULE.test(rule.trim()))
  )
    return value
  throw new StorageError('InvalidXRobotsTag', `Invalid X-Robots-Tag header: ${value}`)
}
