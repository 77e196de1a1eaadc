import { neonConfig } from '@neondatabase/serverless'
import type { Config } from '../../config.ts'

export interface DatabaseAddress {
  url: string
  /** Base URL of a Neon-compatible proxy in front of Postgres; absent for Neon itself. */
  proxy?: string | undefined
  /** Fetcher of the proxy; the global fetch if absent. */
  egress?: Fetcher | undefined
  /** Key with which the proxy accepts every role without a password. */
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
 * Address of the control plane's own database. If a database host runs it, the control plane authenticates with the host key: with
 * a password it would count against the limit of unauthenticated clients.
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

/** Makes the Neon driver send its HTTP requests for this Postgres through the proxy and egress. */
export function route({ url, proxy, egress, key }: DatabaseAddress): void {
  if (!proxy) return
  const { hostname, port } = new URL(url)
  const base = proxy.replace(/\/$/, '')
  proxies.set(`${hostname}:${port || '5432'}`, base)
  if (egress) egresses.set(`${base}/sql`, egress)
  if (key !== undefined) keys.set(`${base}/sql`, key)
}

/** Sends one request body of the Neon driver's HTTP protocol, with further headers. */
export type SqlOverHttp = (body: string, more?: Record<string, string>) => Promise<Response>

/** Prepares the URL and headers once. The driver does it for each request, which at thousands a second is a large part of the cost. */
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
  return (body, more) => send(endpoint, { method: 'POST', headers: { ...headers, ...more }, body })
}
