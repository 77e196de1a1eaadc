import { sql } from 'drizzle-orm'
import { openEngine } from './engine/open-engine.ts'
import { type Bindings, readConfig, type SystemCtx } from './env.ts'
import { openDatabase } from './platform/db/client.ts'
import { controlDatabase } from './platform/db/control-database.ts'
import { DATABASE_CLOCK } from './platform/db/database-clock.ts'
import { createLogger } from './platform/http/log.ts'

interface Origin {
  bindings: Bindings
  waitUntil(work: Promise<unknown>): void
  requestId?: string
  /** Epoch milliseconds to take for now, where settings allow it. */
  clock?: string | undefined
}

/** The context of one request, message or tick. */
export function createCtx({ bindings, waitUntil, requestId = crypto.randomUUID(), clock }: Origin): SystemCtx {
  const config = readConfig(bindings)
  const db = openDatabase({ ...controlDatabase(config), egress: bindings.SERVICES_EGRESS })
  const fixed = config.TEST_CLOCK === 'on' && clock ? Number(clock) : undefined
  return {
    config,
    bindings,
    requestId,
    db,
    engine: openEngine(config, { db, egress: bindings.SERVICES_EGRESS }),
    now: () => new Date(fixed ?? Date.now()),
    databaseNow: fixed === undefined ? DATABASE_CLOCK : sql`${new Date(fixed).toISOString()}::timestamptz`,
    waitUntil,
    log: createLogger(requestId),
  }
}
