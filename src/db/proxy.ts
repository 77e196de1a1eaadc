import { neonConfig } from '@neondatabase/serverless'

export interface DatabaseAddress {
  url: string
  /** Base URL of a Neon-compatible proxy in front of Postgres; absent for Neon itself. */
  proxy?: string | undefined
  /** The way to that proxy, where it is not the global fetch. */
  egress?: Fetcher | undefined
}

const neonEndpoint = neonConfig.fetchEndpoint
const proxies = new Map<string, string>()
neonConfig.fetchEndpoint = (host, port, options) => {
  const proxy = proxies.get(`${host}:${port}`)
  if (proxy) return `${proxy}/sql`
  return typeof neonEndpoint === 'string' ? neonEndpoint : neonEndpoint(host, port, options)
}

const egresses = new Map<string, Fetcher>()
neonConfig.fetchFunction = (url: string, init: RequestInit) => (egresses.get(url) ?? globalThis).fetch(url, init)

/** From now on the driver's HTTP requests for this Postgres take this way. */
export function route({ url, proxy, egress }: DatabaseAddress): void {
  if (!proxy) return
  const { hostname, port } = new URL(url)
  const base = proxy.replace(/\/$/, '')
  proxies.set(`${hostname}:${port || '5432'}`, base)
  if (egress) egresses.set(`${base}/sql`, egress)
}
