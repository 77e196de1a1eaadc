import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'
import type { Gateway } from '../gateway/gateway.ts'
import type { Instances } from '../instances/types.ts'
import type { HostKey } from '../key.ts'
import { cacheLogins } from './authentication.ts'
import { openBudget } from './budget.ts'
import { answerSql } from './http.ts'
import { DEFAULT_LIMITS, type SqlLimits } from './limits.ts'
import { answerScript } from './script.ts'
import { openSessions } from './sessions.ts'
import { openTargets } from './target.ts'
import { MEMORY_FACTOR } from './text-query.ts'
import { openWebSockets } from './websocket.ts'

export interface SqlHandlersOptions {
  instances: Instances
  gateway: Pick<Gateway, 'serve'>
  /** Called for callers without the host's key. */
  authenticate: Gateway['authenticate']
  key: HostKey
  /** Connection strings may name an instance as `db.<ref>.<domain>`. */
  domain?: string | undefined
  limits?: Partial<SqlLimits>
}

export interface SqlHandlers {
  /** POST /sql and POST /script; 404 for anything else. */
  sql(req: IncomingMessage, res: ServerResponse): void
  /** GET /v1 and /v2 */
  upgrade(req: IncomingMessage, socket: Duplex, head: Buffer): void
  stop(): Promise<void>
  /** Ends the sessions on an instance that wait for their next request. */
  endIdle(name: string): void
  /**
   * Ends the sessions that /sql has on an instance, and forgets who has logged in to it: `all` before it stops, `clients`
   * (of callers without the host's key) when its access rules or roles have changed.
   */
  endSessions(name: string, whose?: 'all' | 'clients'): void
}

/** The protocols of `@neondatabase/serverless`, for the one HTTP server of a host. */
export function createSqlHandlers(options: SqlHandlersOptions): SqlHandlers {
  const { instances, gateway, key } = options
  const limits = { ...DEFAULT_LIMITS, ...options.limits }
  const { budgetBytesMax, budgetWaitMs, resultBytesMax } = limits
  if (budgetBytesMax < 2 * MEMORY_FACTOR * resultBytesMax) {
    throw new Error(`The budget for results must be at least ${2 * MEMORY_FACTOR} times the largest result`)
  }
  const budget = openBudget({ bytesMax: budgetBytesMax, waitMs: budgetWaitMs })
  const logins = cacheLogins(options.authenticate)
  const sessions = openSessions(instances, limits)
  const webSockets = openWebSockets({ gateway, key, limits })
  const targetOf = openTargets(key, options.domain)
  const sql = answerSql({ instances, targetOf, checkLogin: logins.check, sessions, openAccount: budget.open, limits })
  const script = answerScript({ instances, sessions, key, openAccount: budget.open, limits })
  return {
    sql: (req, res) => void (req.method === 'POST' && req.url === '/script' ? script : sql)(req, res),
    upgrade: webSockets.upgrade,
    async stop() {
      webSockets.close()
      await sessions.close()
    },
    endIdle: sessions.endIdle,
    endSessions(name, whose = 'all') {
      logins.forget(name)
      sessions.endSessions(name, whose)
    },
  }
}
