/** Counts the values in the chunks of a JSON text by what opens or separates them, so that no long text is searched at once. */
export function openValueCounter(): (chunk: Uint8Array) => number {
  let values = 0
  let isText = false
  let isEscaped = false
  return (chunk) => {
    for (let n = 0; n < chunk.length; n++) {
      const byte = chunk[n]
      if (isEscaped) isEscaped = false
      else if (byte === QUOTE) isText = !isText
      else if (isText) isEscaped = byte === BACKSLASH
      else if (byte === COMMA || byte === BRACKET || byte === BRACE) values++
    }
    return values
  }
}

const [QUOTE, BACKSLASH, COMMA, BRACKET, BRACE] = new TextEncoder().encode('"\\,[{')
