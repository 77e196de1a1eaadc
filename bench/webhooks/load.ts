import { setTimeout as delay } from 'node:timers/promises'
import { type Connection, get, type Request, withConnections } from '../client.ts'
import { inTurn } from '../seed.ts'
import type { Arrival } from './ledger.ts'
import type { Endpoint, Endpoints } from './seed.ts'

const CONNECTIONS = 32

/** Commits events at a fixed rate, each for the next endpoint, however long the answers take, like independent callers. */
export async function publishAtRate(
  port: number,
  { organization, endpoints }: Endpoints,
  { perSecond, count }: { perSecond: number; count: number },
): Promise<{ perSecond: number }> {
  const { id, slug } = organization
  const next = inTurn(endpoints.map(({ projectRef: ref }) => get(`/bench/publish?id=${id}&slug=${slug}&ref=${ref}`)))
  return withConnections(port, CONNECTIONS, async (connections) => {
    const startedAt = performance.now()
    let sent = 0
    await Promise.all(
      connections.map(async (connection) => {
        while (sent < count) {
          const dueAt = startedAt + (sent++ * 1000) / perSecond
          const early = dueAt - performance.now()
          if (early > 0) await delay(early)
          await sendAndCheck(connection, next())
        }
      }),
    )
    return { perSecond: (count * 1000) / (performance.now() - startedAt) }
  })
}

/** Wakes the sender of each endpoint. */
export const wakeAll = (port: number, endpoints: readonly Endpoint[]) =>
  sendInParallel(
    port,
    endpoints.map(({ id }) => get(`/bench/wake?endpoint=${id}`)),
  )

/** Sends all requests at the same time, each on its own connection; returns the milliseconds until the last answer. */
export const sendInParallel = (port: number, requests: readonly Request[]): Promise<number> =>
  withConnections(port, requests.length, async (connections) => {
    const startedAt = performance.now()
    await Promise.all(connections.map((connection, n) => sendAndCheck(connection, requests[n] ?? get('/bench/static'))))
    return performance.now() - startedAt
  })

export const ask = (port: number, path: string): Promise<string> =>
  withConnections(port, 1, async ([connection]) => (connection ? sendAndCheck(connection, get(path)) : ''))

async function sendAndCheck(connection: Connection, request: Request): Promise<string> {
  const { status, body } = await connection.send(request)
  if (status !== 200) throw new Error(`the Worker answered ${status}: ${body}`)
  return body
}

export interface Spread {
  count: number
  p50Ms: number
  p99Ms: number
  maxMs: number
}

export function spreadOf(valuesMs: readonly number[]): Spread {
  const sorted = valuesMs.toSorted((a, b) => a - b)
  const at = (share: number) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN
  return { count: sorted.length, p50Ms: at(0.5), p99Ms: at(0.99), maxMs: at(1) }
}

export function latencies(arrivals: readonly Arrival[], published: ReadonlyMap<string, number>): number[] {
  return arrivals.map(({ id, at }) => {
    const from = published.get(id)
    if (from === undefined) throw new Error(`the delivery ${id} belongs to no event`)
    return at - from
  })
}
