const [QUOTE, BACKSLASH] = [0x22, 0x5c]
const [LEFT_BRACKET, RIGHT_BRACKET, LEFT_BRACE, RIGHT_BRACE] = [0x5b, 0x5d, 0x7b, 0x7d]
const NAME_CHARACTERS_MAX = 64

/** Empties members of the outermost object in a JSON text that arrives in chunks: `"commits":[…]` becomes `"commits":[]`. */
export function emptyMembers(names: readonly string[]): (chunk: Uint8Array) => Uint8Array {
  let depth = 0
  let isString = false
  let isEscaped = false
  let isOmitted = false
  /** The last string of the outermost object: the name of the member, when a list or an object begins. */
  let name = ''
  return (chunk) => {
    const kept = new Uint8Array(chunk.length)
    let length = 0
    for (const byte of chunk) {
      const isOpening = !isString && (byte === LEFT_BRACE || byte === LEFT_BRACKET)
      if (isString) {
        isString = isEscaped || byte !== QUOTE
        isEscaped = !isEscaped && byte === BACKSLASH
        if (isString && depth === 1 && name.length < NAME_CHARACTERS_MAX) name += String.fromCharCode(byte)
      } else if (byte === QUOTE) {
        isString = true
        if (depth === 1) name = ''
      } else if (isOpening) {
        depth += 1
      } else if (byte === RIGHT_BRACE || byte === RIGHT_BRACKET) {
        depth -= 1
        if (depth === 1) isOmitted = false
      }
      if (!isOmitted) kept[length++] = byte
      if (isOpening && depth === 2) isOmitted = names.includes(name)
    }
    return kept.subarray(0, length)
  }
}
