/**
 * Request header of the database host: the statement and the column, as in `1.2`, whose value follows the JSON of the reply as it is.
 * Other proxies ignore it.
 */
export const SEPARATE_VALUE = 'pilothouse-separate-value'
/** Header of a reply that consists of JSON, of this size, and of a value. */
export const JSON_BYTES = 'pilothouse-json-bytes'

/** A smaller value is read at once: it costs less, and a slow client does not hold memory of the database host. */
const STREAMED_BYTES_MIN = 1024 * 1024

/** Text as UTF-8. */
export type SeparateValue = Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array>

/** Divides a reply into its JSON and the value after it. A long value is a stream that must be read. */
export async function readSeparately(
  response: Response,
  jsonBytes: number,
): Promise<[json: string, value: SeparateValue]> {
  const bytes = Number(response.headers.get('content-length'))
  if (bytes < STREAMED_BYTES_MIN || !response.body) {
    const all = new Uint8Array(await response.arrayBuffer())
    return [decoder.decode(all.subarray(0, jsonBytes)), all.subarray(jsonBytes)]
  }
  const reader = response.body.getReader({ mode: 'byob' })
  const { value } = await reader.readAtLeast(jsonBytes, new Uint8Array(jsonBytes))
  reader.releaseLock()
  // Both ends are native, so the bytes do not pass through JavaScript. If one end fails, the other does too.
  const { readable, writable } = new FixedLengthStream(bytes - jsonBytes)
  response.body.pipeTo(writable).catch(() => {})
  return [decoder.decode(value), readable]
}

const decoder = new TextDecoder()
