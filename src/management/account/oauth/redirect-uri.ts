/** So many characters may a redirect URI have. */
const CHARACTERS_MAX = 1_000

/** The IP addresses of the machine itself, where an app takes the port that is free (RFC 8252, 7.3). */
const LOOPBACK = /^(http:\/\/(?:127\.0\.0\.1|\[::1\]))(?::\d{1,5})?(?=[/?]|$)/

/** Character by character (RFC 6749, 3.1.2.3), but for the port on a loopback address. */
export function isRegistered(uri: string, registered: readonly string[]): boolean {
  // Such as a port beyond 65535.
  if (!URL.canParse(uri)) return false
  const portless = uri.replace(LOOPBACK, '$1')
  return registered.some(
    (known) => known === uri || (LOOPBACK.test(known) && known.replace(LOOPBACK, '$1') === portless),
  )
}

/** What speaks against registering it; undefined for nothing. */
export function redirectUriFault(uri: string): string | undefined {
  if (!/^[\x21-\x7e]+$/.test(uri) || !URL.canParse(uri)) return 'is no absolute URI'
  if (uri.length > CHARACTERS_MAX) return `has more than ${CHARACTERS_MAX} characters`
  if (uri.includes('#')) return 'has a fragment'
  const { protocol, hostname, username, password } = new URL(uri)
  if (username || password) return 'holds a user'
  if (protocol === 'https:') return undefined
  if (protocol === 'http:') return isOwnMachine(hostname) ? undefined : 'must be https'
  // RFC 8252, 7.1: a private scheme is a domain of its app, backwards. It keeps out javascript: and its like too.
  return protocol.includes('.')
    ? undefined
    : 'must be https, http on a loopback address, or a scheme such as com.example.app'
}

const isOwnMachine = (hostname: string): boolean => ['127.0.0.1', '[::1]', 'localhost'].includes(hostname)

/** What a page may send its form to, so that the redirection behind it is let through (Content Security Policy, form-action). */
export function formTarget(uri: string): string {
  const { protocol, origin, hostname } = new URL(uri)
  const isNamed = protocol.startsWith('http') && !hostname.startsWith('[')
  return isNamed ? origin : protocol
}

/** Whether a browser can post a form to it, as it can to no app of a phone. */
export const takesForms = (uri: string): boolean => /^https?:$/.test(URL.parse(uri)?.protocol ?? '')

/** The parameters are appended to whatever the URI brings along. */
export function withParameters(uri: string, parameters: URLSearchParams, place: '?' | '#'): string {
  return `${uri}${place === '?' && uri.includes('?') ? '&' : place}${parameters}`
}
