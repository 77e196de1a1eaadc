import { openDatabase } from './db/client.ts'
import { createEngine } from './engine/select.ts'
import { type Bindings, type LogFields, readConfig, type SystemCtx } from './env.ts'
import { createLogger } from './http/log.ts'

interface Origin {
  bindings: Bindings
  waitUntil(work: Promise<unknown>): void
  requestId?: string
  /** Epoch milliseconds to take for now, where settings allow it. */
  clock?: string | undefined
  facts?: LogFields
}

/** The context of one request, message or tick. */
export function createCtx({
  bindings,
  waitUntil,
  requestId = crypto.randomUUID(),
  clock,
  facts = {},
}: Origin): SystemCtx {
  const config = readConfig(bindings)
  const fixed = config.TEST_CLOCK === 'on' && clock ? Number(clock) : undefined
  const countQuery = () => {
    facts.queries = ((facts.queries as number | undefined) ?? 0) + 1
  }
  return {
    config,
    bindings,
    requestId,
    db: openDatabase({ url: config.DATABASE_URL, proxy: config.NEON_PROXY }, countQuery),
    engine: createEngine(config),
    now: () => new Date(fixed ?? Date.now()),
    waitUntil,
    log: createLogger(requestId),
  }
}
