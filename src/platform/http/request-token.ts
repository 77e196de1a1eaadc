/**
 * Returns the token of a request: from the Authorization header with or without `Bearer`, else from the query, else from the
 * `apikey` header. Empty if there is only the word `Bearer`, undefined if there is nothing.
 */
export function tokenIn(headers: Headers, query?: string): string | undefined {
  const sent = [headers.get('authorization'), query, headers.get('apikey')].filter((text) => typeof text === 'string')
  const tokens = sent.map((text) => text.replace(/^Bearer(\s+|$)/i, '').trim())
  return tokens.find((token) => token !== '') ?? tokens[0]
}
