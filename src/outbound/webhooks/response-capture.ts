const HEADERS_MAX = 100
const HEADERS_BYTES_MAX = 16 * 1024
/** Limits a value, so that a long one does not use up the space of the others. */
const HEADER_VALUE_BYTES_MAX = 4 * 1024
const BODY_BYTES_MAX = 64 * 1024

export interface CapturedResponse {
  /** The received status, 0 to 999. */
  code: number
  headers: Record<string, string>
  body: string
  /** True if the body is incomplete: it was too large, or reading it failed. */
  isTruncated: boolean
}

/** Reads a response up to the size limits and cancels the rest. Keeps the received part if reading fails or `signal` aborts. Never throws. */
export async function capture(
  response: Response,
  signal: AbortSignal,
): Promise<CapturedResponse & { readError?: unknown }> {
  const buffer = { bytes: new Uint8Array(0), length: 0 }
  const { isComplete, ...failure } = await read(response, signal, buffer)
  // Decoded as a stream if incomplete, so that a truncated character is dropped.
  const text = new TextDecoder().decode(buffer.bytes.subarray(0, buffer.length), { stream: !isComplete })
  const body = toStorableText(text, BODY_BYTES_MAX)
  return {
    code: response.status >= 0 && response.status <= 999 ? response.status : 0,
    headers: captureHeaders(response.headers),
    body: body.text,
    isTruncated: !isComplete || body.isCut,
    ...failure,
  }
}

/** Converts the body for the API: an object if it is a JSON object of strings, otherwise the text; null if empty. */
export function toReplyBody(body: string): Record<string, string> | string | null {
  if (body === '') return null
  try {
    const parsed: unknown = JSON.parse(body)
    return isRecordOfStrings(parsed) ? parsed : body
  } catch {
    return body
  }
}

/** Returns true for 200 to 299. */
export function isSuccess(code: number): boolean {
  return code >= 200 && code <= 299
}

interface ByteBuffer {
  bytes: Uint8Array
  length: number
}

async function read(
  response: Response,
  signal: AbortSignal,
  buffer: ByteBuffer,
): Promise<{ isComplete: boolean; readError?: unknown }> {
  const aborted = Promise.withResolvers<never>()
  const onAbort = () => aborted.reject(signal.reason)
  let reader: ReadableStreamDefaultReader<Uint8Array> | undefined
  try {
    if (!response.body) return { isComplete: true }
    reader = response.body.getReader() as ReadableStreamDefaultReader<Uint8Array>
    signal.addEventListener('abort', onAbort)
    if (signal.aborted) onAbort()
    // One race for the whole loop: a race per chunk would accumulate listeners for a slow body.
    return { isComplete: await Promise.race([fill(buffer, reader), aborted.promise]) }
  } catch (error) {
    // A stream may fail with undefined, but callers check whether there is an error.
    return {
      isComplete: false,
      readError: error || new Error('The body could not be read to its end', { cause: error }),
    }
  } finally {
    signal.removeEventListener('abort', onAbort)
    reader?.cancel().catch(() => undefined)
  }
}

/** Returns true if the body ended within the size limit. */
async function fill(buffer: ByteBuffer, reader: ReadableStreamDefaultReader<Uint8Array>): Promise<boolean> {
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return true
    const capacity = BODY_BYTES_MAX - buffer.length
    append(buffer, value.subarray(0, capacity))
    if (value.length > capacity) return false
  }
}

/** Copies the chunk, so that a few bytes do not keep the runtime's whole buffer alive. */
function append(buffer: ByteBuffer, chunk: Uint8Array): void {
  const length = buffer.length + chunk.length
  if (length > buffer.bytes.length) {
    const grown = new Uint8Array(Math.min(Math.max(length, 2 * buffer.bytes.length), BODY_BYTES_MAX))
    grown.set(buffer.bytes.subarray(0, buffer.length))
    buffer.bytes = grown
  }
  buffer.bytes.set(chunk, buffer.length)
  buffer.length = length
}

function captureHeaders(headers: Headers): Record<string, string> {
  const buffer = new Map<string, string>()
  let remainingBytes = HEADERS_BYTES_MAX
  for (const name of new Set(headers.keys())) {
    const key = toStorableText(name, remainingBytes)
    if (key.isCut || buffer.size === HEADERS_MAX) break
    // get() joins repeated headers, including Set-Cookie.
    const value = toStorableText(
      headers.get(name) ?? '',
      Math.min(remainingBytes - key.sizeBytes, HEADER_VALUE_BYTES_MAX),
    )
    remainingBytes -= key.sizeBytes + value.sizeBytes
    buffer.set(key.text, value.text)
  }
  // Not by assignment, because a header may be named __proto__.
  return Object.fromEntries(buffer)
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: removes control characters
const CONTROLS = /[\0-\x08\x0b\x0c\x0e-\x1f]/g

/**
 * Returns text that Postgres can store (no NUL or lone surrogates) and that JSON does not inflate (control characters only for tabs
 * and line breaks), truncated to a number of UTF-8 bytes.
 */
function toStorableText(text: string, bytesMax: number): { text: string; sizeBytes: number; isCut: boolean } {
  const clean = text.replace(CONTROLS, '').toWellFormed()
  // encodeInto stops before a character that does not fit.
  const { read, written } = new TextEncoder().encodeInto(clean, new Uint8Array(Math.min(3 * clean.length, bytesMax)))
  return { text: clean.slice(0, read), sizeBytes: written, isCut: read < clean.length }
}

const isRecordOfStrings = (value: unknown): value is Record<string, string> =>
  typeof value === 'object' &&
  value !== null &&
  !Array.isArray(value) &&
  Object.values(value).every((item) => typeof item === 'string')
