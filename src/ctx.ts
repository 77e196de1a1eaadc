import { sql } from 'drizzle-orm'
import type { Actor, Caller } from './actor.ts'
import { type Config, readConfig } from './config.ts'
import type { ProjectEngine } from './engine/engine.ts'
import { openEngine } from './engine/open-engine.ts'
import type { Bindings } from './platform/bindings.ts'
import { fixedTime } from './platform/clock.ts'
import type { PlatformCtx } from './platform/context.ts'
import { openDatabase } from './platform/db/client.ts'
import { controlDatabase } from './platform/db/control-database.ts'
import { DATABASE_CLOCK } from './platform/db/database-clock.ts'
import { createLogger } from './platform/http/log.ts'

/** The context of any work, and the first parameter of every service. */
export interface SystemCtx extends PlatformCtx {
  actor: Actor
  engine: ProjectEngine
}

/** The context of an authenticated request to the management API. */
export interface Ctx extends SystemCtx {
  actor: Caller
}

interface Origin {
  bindings: Bindings
  waitUntil(work: Promise<unknown>): void
  requestId?: string
}

/** Creates the context of one request, message or tick. */
export function createCtx({ bindings, waitUntil, requestId = crypto.randomUUID() }: Origin): SystemCtx {
  const config = readConfig(bindings)
  const fixed = fixedTime.getStore()
  return {
    config,
    actor: { kind: 'system' },
    bindings,
    requestId,
    ...sharedOf(config, bindings.SERVICES_EGRESS),
    now: () => new Date(fixed ?? Date.now()),
    databaseNow: fixed === undefined ? DATABASE_CLOCK : sql`${new Date(fixed).toISOString()}::timestamptz`,
    waitUntil,
    log: createLogger(requestId),
  }
}

const shared = new WeakMap<Config, Pick<SystemCtx, 'db' | 'engine'>>()

/** The database and the engine hold no state of a request and are costly to create, so all requests of an isolate share them. */
function sharedOf(config: Config, egress: Fetcher | undefined): Pick<SystemCtx, 'db' | 'engine'> {
  const known = shared.get(config)
  if (known) return known
  const db = openDatabase({ ...controlDatabase(config), egress })
  const opened = { db, engine: openEngine(config, { db, egress }) }
  shared.set(config, opened)
  return opened
}
