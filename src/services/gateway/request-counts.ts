import { sql } from 'drizzle-orm'
import type { SystemCtx } from '../../ctx.ts'
import { createCtx } from '../../ctx.ts'
import type { requestCounts } from '../../model/tables/index.ts'
import type { Bindings } from '../../platform/bindings.ts'
import { describeError } from '../../platform/http/log.ts'

type Count = Pick<typeof requestCounts.$inferSelect, 'projectRef' | 'service' | 'requests'> & {
  /** Epoch milliseconds. */
  minute: number
}

interface Host {
  bindings: Bindings
  execution: Pick<ExecutionContext, 'waitUntil'>
}

const MINUTE_MS = 60_000
const WRITTEN_AFTER_MS = 5_000
/** Who was to write has gone away with its request. */
const GONE_AFTER_MS = 4 * WRITTEN_AFTER_MS
const KEPT_MAX = 20_000

let counts = new Map<string, Count>()
let dropped = 0
let writingSince = 0

/** Of a project that there is, at `at` in epoch milliseconds. It is written with others, a few seconds later; a crash loses it. */
export function countRequest(host: Host, projectRef: string, service: Count['service'], at: number): void {
  const minute = at - (at % MINUTE_MS)
  const key = `${projectRef} ${service} ${minute}`
  const known = counts.get(key)
  if (known) known.requests += 1
  else if (counts.size < KEPT_MAX) counts.set(key, { projectRef, service, minute, requests: 1 })
  else dropped += 1
  writeSoon(host)
}

function writeSoon({ bindings, execution }: Host): void {
  const now = Date.now()
  if (writingSince > 0 && now - writingSince < GONE_AFTER_MS) return
  writingSince = now
  const waitUntil = (work: Promise<unknown>) => execution.waitUntil(work)
  waitUntil(scheduler.wait(WRITTEN_AFTER_MS).then(() => write(createCtx({ bindings, waitUntil }))))
}

/** One statement for everything that was counted; what comes meanwhile is the next one's. */
async function write({ db, log }: SystemCtx): Promise<void> {
  const rows = [...counts.values()]
  counts = new Map()
  writingSince = 0
  try {
    // In one order, so that the statements of several isolates never wait for each other in a circle.
    await db.execute(sql`
      insert into request_counts (project_ref, minute, service, requests)
      select "projectRef", to_timestamp(minute / 1000), service, requests
      from json_to_recordset(${JSON.stringify(rows)}::json)
        as r ("projectRef" text, minute double precision, service text, requests int)
      order by 1, 2, 3
      on conflict (project_ref, minute, service) do update set requests = request_counts.requests + excluded.requests`)
  } catch (error) {
    dropped += rows.reduce((sum, { requests }) => sum + requests, 0)
    log.error('failed', { code: 'request_counts', error: describeError(error) })
  }
  if (dropped > 0) log.error('request_counts_dropped', { requests: dropped })
  dropped = 0
}
