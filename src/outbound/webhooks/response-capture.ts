const HEADERS_MAX = 100
const HEADERS_BYTES_MAX = 16 * 1024
/** So that one long value does not leave the others without room. */
const HEADER_VALUE_BYTES_MAX = 4 * 1024
const BODY_BYTES_MAX = 64 * 1024

export interface Captured {
  /** 0 to 999, as received. */
  code: number
  headers: Record<string, string>
  body: string
  /** What is kept is not the whole body: it was larger, or reading it failed. */
  bodyCut: boolean
}

/** Reads what is to be kept of a response, then cancels it. Keeps what came when reading fails or `signal` aborts. Never throws. */
export async function capture(response: Response, signal: AbortSignal): Promise<Captured & { readError?: unknown }> {
  const kept = { bytes: new Uint8Array(0), length: 0 }
  const { whole, ...failure } = await read(response, signal, kept)
  // As a stream unless whole, so that a character of which only the first bytes were kept is left out.
  const text = new TextDecoder().decode(kept.bytes.subarray(0, kept.length), { stream: !whole })
  const body = storable(text, BODY_BYTES_MAX)
  return {
    code: response.status >= 0 && response.status <= 999 ? response.status : 0,
    headers: keptHeaders(response.headers),
    body: body.text,
    bodyCut: !whole || body.cut,
    ...failure,
  }
}

/** The body as the API shows it: an object when it is a JSON object of strings, else the text, null when empty. */
export function shownBody(body: string): Record<string, string> | string | null {
  if (body === '') return null
  try {
    const parsed: unknown = JSON.parse(body)
    return isRecordOfStrings(parsed) ? parsed : body
  } catch {
    return body
  }
}

/** 200 to 299 and nothing else. */
export function isSuccess(code: number): boolean {
  return code >= 200 && code <= 299
}

interface Kept {
  bytes: Uint8Array
  length: number
}

async function read(
  response: Response,
  signal: AbortSignal,
  kept: Kept,
): Promise<{ whole: boolean; readError?: unknown }> {
  const aborted = Promise.withResolvers<never>()
  const onAbort = () => aborted.reject(signal.reason)
  let reader: ReadableStreamDefaultReader<Uint8Array> | undefined
  try {
    if (!response.body) return { whole: true }
    reader = response.body.getReader() as ReadableStreamDefaultReader<Uint8Array>
    signal.addEventListener('abort', onAbort)
    if (signal.aborted) onAbort()
    // One race around the loop, not one a chunk: those of a body that drips bytes would pile up.
    return { whole: await Promise.race([fill(kept, reader), aborted.promise]) }
  } catch (error) {
    // A stream may fail with nothing at all, and callers ask whether there is an error.
    return { whole: false, readError: error || new Error('The body could not be read to its end', { cause: error }) }
  } finally {
    signal.removeEventListener('abort', onAbort)
    reader?.cancel().catch(() => undefined)
  }
}

/** True when the body ended before there was more of it than is kept. */
async function fill(kept: Kept, reader: ReadableStreamDefaultReader<Uint8Array>): Promise<boolean> {
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return true
    const room = BODY_BYTES_MAX - kept.length
    append(kept, value.subarray(0, room))
    if (value.length > room) return false
  }
}

/** Copies, so that a few bytes do not keep the runtime's whole buffer alive. */
function append(kept: Kept, chunk: Uint8Array): void {
  const length = kept.length + chunk.length
  if (length > kept.bytes.length) {
    const grown = new Uint8Array(Math.min(Math.max(length, 2 * kept.bytes.length), BODY_BYTES_MAX))
    grown.set(kept.bytes.subarray(0, kept.length))
    kept.bytes = grown
  }
  kept.bytes.set(chunk, kept.length)
  kept.length = length
}

function keptHeaders(headers: Headers): Record<string, string> {
  const kept = new Map<string, string>()
  let roomBytes = HEADERS_BYTES_MAX
  for (const name of new Set(headers.keys())) {
    const key = storable(name, roomBytes)
    if (key.cut || kept.size === HEADERS_MAX) break
    // get() joins what was sent several times, Set-Cookie too.
    const value = storable(headers.get(name) ?? '', Math.min(roomBytes - key.sizeBytes, HEADER_VALUE_BYTES_MAX))
    roomBytes -= key.sizeBytes + value.sizeBytes
    kept.set(key.text, value.text)
  }
  // Not by assignment: a header may be called __proto__.
  return Object.fromEntries(kept)
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: these it is about
const CONTROLS = /[\0-\x08\x0b\x0c\x0e-\x1f]/g

/**
 * Text that Postgres can hold (no NUL, no half of a surrogate pair) and that JSON does not blow up (no other control characters
 * but tabs and line breaks), cut to a number of UTF-8 bytes.
 */
function storable(text: string, bytesMax: number): { text: string; sizeBytes: number; cut: boolean } {
  const clean = text.replace(CONTROLS, '').toWellFormed()
  // encodeInto stops before a character that does not fit as a whole.
  const { read, written } = new TextEncoder().encodeInto(clean, new Uint8Array(Math.min(3 * clean.length, bytesMax)))
  return { text: clean.slice(0, read), sizeBytes: written, cut: read < clean.length }
}

const isRecordOfStrings = (value: unknown): value is Record<string, string> =>
  typeof value === 'object' &&
  value !== null &&
  !Array.isArray(value) &&
  Object.values(value).every((item) => typeof item === 'string')
