import { Client, type NeonQueryFunction, neon, neonConfig } from '@neondatabase/serverless'
import { drizzle } from 'drizzle-orm/neon-http'
import { drizzle as drizzleOverSocket } from 'drizzle-orm/neon-serverless'
import type { PgDatabase, PgQueryResultHKT } from 'drizzle-orm/pg-core'
import * as schema from './schema/index.ts'

export type Db = ReturnType<typeof openDatabase>
/** What services write through: the same in a transaction and outside it. */
export type Writer = PgDatabase<PgQueryResultHKT, typeof schema>

export interface DatabaseAddress {
  url: string
  /** Base URL of a Neon-compatible proxy in front of Postgres; absent for Neon itself. */
  proxy?: string | undefined
}

const neonEndpoint = neonConfig.fetchEndpoint
const proxies = new Map<string, string>()
neonConfig.fetchEndpoint = (host, port, options) => {
  const proxy = proxies.get(`${host}:${port}`)
  if (proxy) return `${proxy}/sql`
  return typeof neonEndpoint === 'string' ? neonEndpoint : neonEndpoint(host, port, options)
}

const addressOf = (url: string) => {
  const { hostname, port } = new URL(url)
  return { host: hostname, port: port || '5432' }
}

const clients = new Map<string, NeonQueryFunction<false, false>>()

/** Kept for the isolate: it is stateless, and reading the addresses costs more than the rest of a request's set-up. */
function clientOf({ url, proxy }: DatabaseAddress): NeonQueryFunction<false, false> {
  const key = `${url} ${proxy}`
  const known = clients.get(key)
  if (known) return known
  const { host, port } = addressOf(url)
  if (proxy) proxies.set(`${host}:${port}`, proxy.replace(/\/$/, ''))
  const client = neon(url)
  clients.set(key, client)
  return client
}

/** One HTTP round trip a query or batch; `countQuery` hears of each. */
export function openDatabase(address: DatabaseAddress, countQuery: () => void) {
  // Without the schema: only relational queries need it, and it would be worked through anew for each request.
  return drizzle(clientOf(address), { logger: { logQuery: countQuery } })
}

/** Runs `work` in one transaction over a WebSocket, for the few decisions that must be taken inside it. */
export async function inTransaction<T>({ url, proxy }: DatabaseAddress, work: (tx: Writer) => Promise<T>): Promise<T> {
  const client = new Client(url)
  if (proxy) {
    const { host, protocol } = new URL(proxy)
    Object.assign(client.neonConfig, {
      wsProxy: `${host}/v2`,
      useSecureWebSocket: protocol === 'https:',
      pipelineTLS: false,
      pipelineConnect: false,
    })
  }
  client.on('error', () => {})
  await client.connect()
  try {
    return await drizzleOverSocket(client, { schema }).transaction(work)
  } finally {
    await client.end()
  }
}
