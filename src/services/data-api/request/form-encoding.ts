/** Parses a query as `URLSearchParams` does, at a third of its cost in this runtime. */
export const parseForm = (query: string): [name: string, value: string][] =>
  query
    .split('&')
    .filter((pair) => pair !== '')
    .map((pair) => {
      const at = pair.indexOf('=')
      return at < 0 ? [formDecoded(pair), ''] : [formDecoded(pair.slice(0, at)), formDecoded(pair.slice(at + 1))]
    })

function formDecoded(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '))
  } catch {
    // `URLSearchParams` accepts malformed texts.
    return new URLSearchParams(`text=${text}`).get('text') ?? ''
  }
}

/** Writes a query as `URLSearchParams` does. */
export const writeForm = (pairs: readonly (readonly [name: string, value: string])[]): string =>
  pairs.map((pair) => pair.map(formEncoded).join('=')).join('&')

/** Encodes a text as `URLSearchParams` does, at a fraction of its cost in this runtime. */
const formEncoded = (text: string): string =>
  encodeURIComponent(text)
    .replaceAll('%20', '+')
    .replace(/[!'()~]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`)
