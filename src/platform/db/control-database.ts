import { neonConfig } from '@neondatabase/serverless'
import type { Config } from '../../config.ts'

export interface DatabaseAddress {
  url: string
  /** Base URL of a Neon-compatible proxy in front of Postgres; absent for Neon itself. */
  proxy?: string | undefined
  /** The way to that proxy, where it is not the global fetch. */
  egress?: Fetcher | undefined
  /** Makes the proxy let every role in without a password. */
  key?: string | undefined
}

const neonEndpoint = neonConfig.fetchEndpoint
const proxies = new Map<string, string>()
neonConfig.fetchEndpoint = (host, port, options) => {
  const proxy = proxies.get(`${host}:${port}`)
  if (proxy) return `${proxy}/sql`
  return typeof neonEndpoint === 'string' ? neonEndpoint : neonEndpoint(host, port, options)
}

/**
 * The control plane's own. A database host that carries it knows the control plane by its key: with a password it would be one
 * of the clients, whose number is bounded before they have authenticated.
 */
export function controlDatabase(config: Config): DatabaseAddress {
  const { DATABASE_URL: url, NEON_PROXY: proxy } = config
  const isOnHost = config.ENGINE === 'host' && proxy?.replace(/\/+$/, '') === config.HOST_URL
  return { url, proxy, key: isOnHost ? config.HOST_KEY : undefined }
}

const egresses = new Map<string, Fetcher>()
const keys = new Map<string, string>()
function send(url: string, init: RequestInit): Promise<Response> {
  const key = keys.get(url)
  const headers = { ...(key !== undefined && { authorization: `Bearer ${key}` }), ...init.headers }
  return (egresses.get(url) ?? globalThis).fetch(url, { ...init, headers })
}
neonConfig.fetchFunction = send

/** From now on the driver's HTTP requests for this Postgres take this way. */
export function route({ url, proxy, egress, key }: DatabaseAddress): void {
  if (!proxy) return
  const { hostname, port } = new URL(url)
  const base = proxy.replace(/\/$/, '')
  proxies.set(`${hostname}:${port || '5432'}`, base)
  if (egress) egresses.set(`${base}/sql`, egress)
  if (key !== undefined) keys.set(`${base}/sql`, key)
}

/** Sends one body of the driver's HTTP protocol. */
export type SqlOverHttp = (body: string) => Promise<Response>

/** What the driver does for each request anew, done once: at thousands a second that is much of a request's cost. */
export function sqlOverHttp(address: DatabaseAddress): SqlOverHttp {
  route(address)
  const { hostname, port } = new URL(address.url)
  const { fetchEndpoint } = neonConfig
  const endpoint = typeof fetchEndpoint === 'string' ? fetchEndpoint : fetchEndpoint(hostname, port || '5432')
  const headers = {
    'neon-connection-string': address.url,
    'neon-raw-text-output': 'true',
    'neon-array-mode': 'true',
    ...(address.key !== undefined && { authorization: `Bearer ${address.key}` }),
  }
  return (body) => send(endpoint, { method: 'POST', headers, body })
}
