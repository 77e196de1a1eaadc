/**
 * The credential as it came: in the header with or without `Bearer`, else in the query, else as the key that gateways take.
 * Empty where only the word came, undefined where nothing did.
 */
export function tokenIn(headers: Headers, query?: string): string | undefined {
  const sent = [headers.get('authorization'), query, headers.get('apikey')].filter((text) => typeof text === 'string')
  const tokens = sent.map((text) => text.replace(/^Bearer(\s+|$)/i, '').trim())
  return tokens.find((token) => token !== '') ?? tokens[0]
}
