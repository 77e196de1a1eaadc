import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { promisify } from 'node:util'
import { hostKey } from '../../host/key.ts'
import { Refusal } from '../../host/sql/refusal.ts'
import { createSqlHandlers, type SqlHandlersOptions } from '../../host/sql/sql.ts'
import { ROWS_OF_TEXT } from './call-host.ts'
import { openPool, type TestInstance, testInstance } from './pooled-instance.ts'

export const KEY = 'the-key-of-the-host-in-these-tests'
export const PASSWORD = 'secret'
export const DOMAIN = 'example.com'

export interface TestHost {
  url: string
  instances: Map<string, TestInstance>
  handlers: ReturnType<typeof createSqlHandlers>
  /** The password checks so far, as `<name> <role>`. */
  checks: string[]
  /** The number of open connections. */
  connections(): Promise<number>
  stop(): Promise<void>
}

type Options = Partial<Pick<SqlHandlersOptions, 'gateway' | 'limits'>>

/** Starts instances of these names, and the handlers on a server in front of them. */
export async function startSqlHost(names: readonly string[], options: Options = {}): Promise<TestHost> {
  const { instances, close } = await openInstances(names)
  const host = await serveInstances(instances, options)
  return { ...host, stop: () => host.stop().then(close) }
}

/** Makes instances of these names. */
export async function openInstances(names: readonly string[]) {
  const { pool, close } = await openPool()
  const made = await Promise.all(names.map((name) => pool.ensure({ name })))
  const instances = new Map(made.map((instance) => [instance.name, testInstance(instance)]))
  for (const { admin } of instances.values()) await admin.rows('create role pilothouse login')
  return { instances, close }
}

/** Starts the handlers on a server in front of instances. Every role has the same password. */
export async function serveInstances(instances: Map<string, TestInstance>, options: Options = {}): Promise<TestHost> {
  const checks: string[] = []
  const handlers = createSqlHandlers({
    instances: { find: (name) => instances.get(name), list: () => [...instances.values()] },
    gateway: { serve: (stream) => stream.destroy() },
    authenticate: async (name, role, password) => {
      checks.push(`${name} ${role}`)
      if (password !== PASSWORD) throw new Refusal('28P01', `password authentication failed for user "${role}"`)
      return { recheck: async () => void checks.push(`${name} ${role} again`) }
    },
    key: hostKey(KEY),
    domain: DOMAIN,
    ...options,
  })
  const server = createServer({ keepAliveTimeout: 600_000 }, handlers.sql).on('upgrade', handlers.upgrade)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    instances,
    handlers,
    checks,
    connections: promisify(server.getConnections.bind(server)),
    async stop() {
      const closed = once(server, 'close')
      server.close()
      server.closeAllConnections()
      await handlers.stop()
      await closed
    },
  }
}

export type Query = [text: string, ...params: unknown[]]

export interface SqlCaller {
  /** `<role>.<name>` */
  user: string
  password?: string
  /** Sent as the host's key. */
  key?: string
  headers?: Record<string, string>
  signal?: AbortSignal
}

const toStatement = ([query, ...params]: Query) => ({ query, params })

/** Returns rows of text for each statement, or `[status, code, message]` if the request fails. */
export async function ask(url: string, caller: SqlCaller, queries: Query | readonly Query[]): Promise<unknown[]> {
  const { user, password = '', key, signal } = caller
  const body = isBatch(queries) ? { queries: queries.map(toStatement) } : toStatement(queries)
  const headers = {
    'neon-connection-string': `postgresql://${user}:${password}@any.host/postgres`,
    ...ROWS_OF_TEXT,
    ...(key !== undefined && { authorization: `Bearer ${key}` }),
    ...caller.headers,
  }
  const response = await fetch(`${url}/sql`, { method: 'POST', headers, body: JSON.stringify(body), signal })
  const reply = (await response.json()) as Record<string, unknown>
  if (response.status !== 200) return [response.status, reply.code, reply.message]
  return ((reply.results ?? [reply]) as { rows: unknown }[]).map(({ rows }) => rows)
}

function isBatch(queries: Query | readonly Query[]): queries is readonly Query[] {
  return Array.isArray(queries[0])
}
