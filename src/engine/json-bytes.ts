/** Part of a JSON text: as a string, or as UTF-8. */
export type JsonPiece = string | Uint8Array<ArrayBufferLike>

const encoder = new TextEncoder()

/** The JSON escape of each byte; undefined for bytes that JSON does not escape, such as those of UTF-8 sequences. */
const ESCAPES: readonly (Uint8Array | undefined)[] = Array.from({ length: 256 }, (_, byte) => {
  const character = String.fromCharCode(byte)
  const escaped = byte < 0x80 ? JSON.stringify(character).slice(1, -1) : character
  return escaped === character ? undefined : encoder.encode(escaped)
})
const ADDED_BYTES = Uint8Array.from(ESCAPES, (escaped) => (escaped?.length ?? 1) - 1)

/** Escapes UTF-8 text, cut at any byte, for a JSON string. Returns the same array if nothing needs escaping. */
export function escapeJson(bytes: Uint8Array): Uint8Array {
  let added = 0
  for (let at = 0; at < bytes.length; at++) added += ADDED_BYTES[bytes[at] ?? 0] ?? 0
  if (added === 0) return bytes
  const escaped = new Uint8Array(bytes.length + added)
  let from = 0
  let to = 0
  for (let at = 0; at < bytes.length; at++) {
    const replacement = ESCAPES[bytes[at] ?? 0]
    if (!replacement) continue
    escaped.set(bytes.subarray(from, at), to)
    to += at - from
    escaped.set(replacement, to)
    to += replacement.length
    from = at + 1
  }
  escaped.set(bytes.subarray(from), to)
  return escaped
}

/** Joins pieces to one text; a UTF-8 piece may end within a character. */
export function joinText(pieces: readonly JsonPiece[]): string {
  const decoder = new TextDecoder()
  const texts = pieces.map((piece) => (typeof piece === 'string' ? piece : decoder.decode(piece, { stream: true })))
  return texts.join('') + decoder.decode()
}
