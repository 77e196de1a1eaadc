import type * as z from 'zod'
import { readChunks } from '../../platform/blobs/chunk-reader.ts'
import { discardBody } from '../../platform/blobs/discard-body.ts'
import type { Caller, Storage } from './database.ts'
import { digitsOf, parseExact } from './exact-json.ts'
import { readForm } from './form.ts'
import type { IncomingBody } from './route.ts'
import type { ReplaceHeaders } from './schema.ts'
import type { Place } from './statements/object-rows.ts'
import { StorageError } from './storage-error.ts'

/** What the client specifies about an object besides its bytes. */
export interface Description {
  contentType: string
  cacheControl: string
  xRobotsTag?: string | undefined
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

/** Removes NUL characters, which Postgres cannot store. */
function withoutNul(_key: string, value: unknown): unknown {
  if (typeof value === 'string') return value.replaceAll('\0', '')
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name.replaceAll('\0', ''), each]))
}

/** Bound of the digits that Postgres writes: `1e100000` is short only as sent. */
const DIGITS_MAX = 1024 ** 2

function objectIn(json: string | undefined): string | null {
  if (json === undefined) return null
  let digits = 0
  let object = '{}'
  try {
    const value = parseExact(json, (name, value, source) => {
      if (typeof value === 'number' && source !== undefined) digits += digitsOf(source)
      return withoutNul(name, value)
    })
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) object = JSON.stringify(value)
  } catch {
    return '{}'
  }
  if (digits > DIGITS_MAX)
    throw new StorageError(
      'InvalidParameter',
      `Invalid metadata: its numbers must have at most ${DIGITS_MAX} digits altogether`,
    )
  return object
}

/** Clients send a number of seconds; anything else is used as the header itself. */
const cacheControlOf = (value: string | undefined): string =>
  value === undefined ? 'no-cache' : /^\d+$/.test(value) ? `max-age=${value}` : safeHeader(value)

const HEADER_LENGTH_MAX = 1_000

/** Refuses a value that cannot be sent as a header: each download returns it. */
export function safeHeader(value: string): string {
  if (value.length > HEADER_LENGTH_MAX || !/^[\x20-\x7e]*$/.test(value)) {
    throw new StorageError('InvalidHeaderChar')
  }
  return value
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
