import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'
import type { Gateway } from '../gateway/gateway.ts'
import type { Instances } from '../instances/types.ts'
import type { HostKey } from '../key.ts'
import { openBudget } from './budget.ts'
import { openCallers } from './callers.ts'
import { answerSql } from './http.ts'
import { DEFAULT_LIMITS, type SqlLimits } from './limits.ts'
import { cacheLogins } from './login-cache.ts'
import { answerScript } from './script.ts'
import { openSessions } from './sessions.ts'
import { openTargets } from './target.ts'
import { MEMORY_FACTOR } from './text-query.ts'
import { openWebSockets } from './websocket.ts'

export interface SqlHandlersOptions {
  instances: Instances
  gateway: Pick<Gateway, 'serve'>
  /** Checks the password of callers without the host key. */
  authenticate: Gateway['authenticate']
  key: HostKey
  /** Connection strings may name an instance by the host name `db.<ref>.<domain>`. */
  domain?: string | undefined
  /** The networks of proxies that name their clients; none by default. */
  proxies?: readonly string[] | undefined
  limits?: Partial<SqlLimits>
}

export interface SqlHandlers {
  /** Answers POST /sql and POST /script, and 404 for anything else. */
  sql(req: IncomingMessage, res: ServerResponse): void
  /** Accepts WebSockets at /v1 and /v2. */
  upgrade(req: IncomingMessage, socket: Duplex, head: Buffer): void
  stop(): Promise<void>
  /** Ends the idle sessions on an instance. */
  endIdle(name: string): void
  /**
   * Ends sessions on an instance and evicts its cached logins: `all` before it stops, `clients` (the sessions of callers
   * without the host key) after its access rules or roles have changed.
   */
  endSessions(name: string, whose?: 'all' | 'clients'): void
}

/** Serves the protocols of `@neondatabase/serverless` on the HTTP server of a host. */
export function createSqlHandlers(options: SqlHandlersOptions): SqlHandlers {
  const { instances, gateway, key } = options
  const limits = { ...DEFAULT_LIMITS, ...options.limits }
  const { budgetBytesMax, bodiesBytesMax, budgetWaitMs, resultBytesMax } = limits
  if (budgetBytesMax < 2 * MEMORY_FACTOR * resultBytesMax) {
    throw new Error(`The memory budget for results must be at least ${2 * MEMORY_FACTOR} times the largest result`)
  }
  const budget = openBudget({ purpose: 'results', bytesMax: budgetBytesMax, waitMs: budgetWaitMs })
  // Bodies have a budget of their own: a request holds the memory of its body while it waits for the memory of its result.
  const bodies = openBudget({ purpose: 'requests', bytesMax: bodiesBytesMax, waitMs: budgetWaitMs })
  const logins = cacheLogins(options.authenticate)
  const sessions = openSessions(instances, limits)
  const callerOf = openCallers(options.proxies ?? [])
  const webSockets = openWebSockets({ gateway, key, callerOf, limits })
  const targetOf = openTargets(key, options.domain)
  const sql = answerSql({
    instances,
    targetOf,
    checkLogin: logins.check,
    callerOf,
    sessions,
    openAccount: budget.open,
    openBodyAccount: bodies.open,
    limits,
  })
  const script = answerScript({
    ...{ instances, sessions, key, limits, openAccount: budget.open, openBodyAccount: bodies.open },
  })
  return {
    sql: (req, res) => void (req.method === 'POST' && req.url === '/script' ? script : sql)(req, res),
    upgrade: webSockets.upgrade,
    async stop() {
      webSockets.close()
      await sessions.close()
    },
    endIdle: sessions.endIdle,
    endSessions(name, whose = 'all') {
      logins.evict(name)
      sessions.endSessions(name, whose)
    },
  }
}
