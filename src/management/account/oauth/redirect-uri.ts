const CHARACTERS_MAX = 1_000

/** Loopback addresses, on which an app uses any free port (RFC 8252, 7.3). */
const LOOPBACK = /^(http:\/\/(?:127\.0\.0\.1|\[::1\]))(?::\d{1,5})?(?=[/?]|$)/

/** Compares redirect URIs exactly (RFC 6749, 3.1.2.3), except for the port of a loopback address. */
export function isRegistered(uri: string, registered: readonly string[]): boolean {
  // A port above 65535 matches LOOPBACK but is not a URL.
  if (!URL.canParse(uri)) return false
  const portless = uri.replace(LOOPBACK, '$1')
  return registered.some(
    (known) => known === uri || (LOOPBACK.test(known) && known.replace(LOOPBACK, '$1') === portless),
  )
}

/** Describes why a redirect URI cannot be registered; undefined if it can. */
export function redirectUriError(uri: string): string | undefined {
  if (!/^[\x21-\x7e]+$/.test(uri) || !URL.canParse(uri)) return 'must be an absolute URI'
  if (uri.length > CHARACTERS_MAX) return `must have at most ${CHARACTERS_MAX} characters`
  if (uri.includes('#')) return 'must not have a fragment'
  const { protocol, hostname, username, password } = new URL(uri)
  if (username || password) return 'must not contain a user'
  if (protocol === 'https:') return undefined
  if (protocol === 'http:') return isLoopback(hostname) ? undefined : 'must be https'
  // RFC 8252, 7.1: a private scheme is a reversed domain name. This also refuses javascript: and similar schemes.
  return protocol.includes('.')
    ? undefined
    : 'must be https, http on a loopback address, or a scheme such as com.example.app'
}

const isLoopback = (hostname: string): boolean => ['127.0.0.1', '[::1]', 'localhost'].includes(hostname)

/** Returns the origin of a redirect URI, or the private scheme of an app, for the consent page. */
export function targetOf(uri: string): string {
  const { protocol, origin } = new URL(uri)
  return protocol.startsWith('http') ? origin : protocol
}

/** Whether a browser can post a form to the URI; it cannot post to the private scheme of an app. */
export const acceptsForms = (uri: string): boolean => /^https?:$/.test(URL.parse(uri)?.protocol ?? '')

/** Appends parameters to a URI. */
export function withParameters(uri: string, parameters: URLSearchParams, place: '?' | '#'): string {
  return `${uri}${place === '?' && uri.includes('?') ? '&' : place}${parameters}`
}
