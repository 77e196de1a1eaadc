import { ApiError } from '../http/error.ts'
import type { Resolver } from './dns.ts'
import { isPublicAddress, parseAddress } from './ip-addresses.ts'

export interface DestinationRules {
  resolver: Resolver
  /** Hosts of this installation (API, projects), which are never allowed. A leading dot matches all subdomains. */
  ownHosts: readonly string[]
  /** Allows 127.0.0.1, [::1] and localhost at any port, even if they are in ownHosts. For development only. */
  allowLoopback: boolean
  /** Refuses http, except for loopback hosts. */
  httpsOnly?: boolean
}
type UrlRules = Pick<DestinationRules, 'ownHosts' | 'allowLoopback' | 'httpsOnly'>

export type Verdict =
  | { kind: 'allowed' }
  /** The URL or an address of its host is forbidden. The reason never reveals the address. */
  | { kind: 'refused'; reason: string; isPort?: boolean }
  /** The host name does not exist or has no addresses. */
  | { kind: 'unresolved'; reason: string }
  /** The check failed through no fault of the receiver. */
  | { kind: 'unavailable'; reason: string }

/** Returns why a destination is not allowed, if it is not. Throws if that cannot be checked, which is no fault of its owner. */
export function refusalOf(verdict: Verdict): string | undefined {
  if (verdict.kind === 'allowed') return undefined
  if (verdict.kind !== 'unavailable') return verdict.reason
  throw new ApiError('service_unavailable.name_resolution', { cause: `WEBHOOK_DNS_URL: ${verdict.reason}` })
}

export const URL_LENGTH_MAX = 2_048
const NAME_LENGTH_MAX = 253
const LABEL = /^[a-z0-9_-]{1,63}$/
const LOOPBACK_HOSTS = ['127.0.0.1', '[::1]', 'localhost']
const LOOPBACK_HINT = '; in development WEBHOOK_LOOPBACK=on allows this one'

const SPECIAL_DOMAINS = [
  '.alt',
  '.arpa',
  '.example',
  '.internal',
  '.invalid',
  '.local',
  '.localhost',
  '.onion',
  '.test',
]

/** Ports above 1023 of other protocols, which the text of an HTTP request could abuse. */
const REFUSED_PORTS = [
  1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
]

const SYSLOG_PORTS = [514, 601]

/** Returns why a URL is forbidden, without resolving its host; undefined if it is allowed. */
export function urlProblem(url: string, rules: UrlRules): string | undefined {
  if (url.length > URL_LENGTH_MAX) return `is longer than ${URL_LENGTH_MAX} characters`
  const parsed = URL.parse(url)
  if (!parsed) return 'is not a valid URL'
  if (parsed.protocol !== 'http:' && parsed.protocol !== 'https:') return 'must use http or https'
  if (parsed.username || parsed.password) return 'must not carry credentials'
  const host = hostOf(parsed)
  if (isAllowedLoopback(host, rules)) return undefined
  if (rules.httpsOnly && parsed.protocol !== 'https:') return 'must use https'
  const problem = hostProblem(host, rules.ownHosts) ?? portProblem(parsed.port)
  return problem && LOOPBACK_HOSTS.includes(host) ? problem + LOOPBACK_HINT : problem
}

/** Checks whether a request may be sent to `url` now: every address of its host must be public. */
export async function checkDestination(url: string, rules: DestinationRules): Promise<Verdict> {
  const problem = urlProblem(url, rules)
  if (problem) return { kind: 'refused', reason: problem }
  return checkHost(hostOf(new URL(url)), rules)
}

/** Checks a connection without HTTP. The ports of syslog are allowed too. */
export async function checkSocket(host: string, port: number, rules: DestinationRules): Promise<Verdict> {
  // Parsing as a URL normalizes the spelling of the host.
  const url = URL.parse(`https://${host}:${port}`)
  if (!url || url.pathname + url.search + url.hash + url.username !== '/') {
    return { kind: 'refused', reason: 'has an invalid domain' }
  }
  const name = hostOf(url)
  if (isAllowedLoopback(name, rules)) return { kind: 'allowed' }
  const problem = hostProblem(name, rules.ownHosts)
  if (problem) return { kind: 'refused', reason: LOOPBACK_HOSTS.includes(name) ? problem + LOOPBACK_HINT : problem }
  const portReason = SYSLOG_PORTS.includes(port) ? undefined : portProblem(String(port))
  if (portReason) return { kind: 'refused', reason: portReason, isPort: true }
  return checkHost(name, rules)
}

async function checkHost(host: string, rules: DestinationRules): Promise<Verdict> {
  if (isAllowedLoopback(host, rules)) return { kind: 'allowed' }

  const resolution = await rules.resolver.resolve(host)
  if (resolution.kind === 'nowhere') return { kind: 'unresolved', reason: resolution.reason }
  if (resolution.kind === 'unavailable') return resolution
  if (!resolution.addresses.every((address) => isPublicAddress(address)))
    return { kind: 'refused', reason: 'resolves to a reserved address' }
  return { kind: 'allowed' }
}

/** Host in the normalized spelling of URL parsing, so that other spellings of an address cannot evade the checks. */
const hostOf = ({ hostname }: URL) => hostname.replace(/\.$/, '')

const isAllowedLoopback = (host: string, { allowLoopback }: UrlRules) => allowLoopback && LOOPBACK_HOSTS.includes(host)

/** Returns why a host is forbidden: it is invalid, not a public domain, or belongs to this installation. Undefined if it is allowed. */
export function hostProblem(host: string, ownHosts: readonly string[]): string | undefined {
  if (host.startsWith('[') || parseAddress(host)) return 'must name a public domain, not an address'
  const labels = host.split('.')
  if (host.length > NAME_LENGTH_MAX || !labels.every((label) => LABEL.test(label))) return 'has an invalid domain'
  if (labels.length === 1 || SPECIAL_DOMAINS.some((domain) => host.endsWith(domain))) {
    return 'must name a public domain'
  }
  if (ownHosts.some((own) => matches(host, own))) return 'must not be a host of this installation'
  return undefined
}

function matches(host: string, own: string): boolean {
  const name = own.toLowerCase().replace(/:\d+$/, '').replace(/\.$/, '')
  return name.startsWith('.') ? host.endsWith(name) : host === name
}

function portProblem(port: string): string | undefined {
  const number = Number(port)
  // Empty for the default port of the protocol.
  const allowed = port === '' || number === 80 || number === 443 || (number >= 1_024 && !REFUSED_PORTS.includes(number))
  return allowed ? undefined : 'uses a port that is not allowed'
}
