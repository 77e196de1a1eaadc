import { sql } from 'drizzle-orm'
import type { SystemCtx } from '../../ctx.ts'
import type { requestCounts } from '../../model/tables/index.ts'
import { describeError } from '../../platform/http/log.ts'
import { createWriteBehind, type RequestScope } from './write-behind.ts'

type Count = Pick<typeof requestCounts.$inferSelect, 'projectRef' | 'service' | 'requests'> & {
  /** Epoch milliseconds. */
  minute: number
}

const MINUTE_MS = 60_000
const COUNTS_MAX = 20_000

let counts = new Map<string, Count>()
let dropped = 0
const writeSoon = createWriteBehind({ delayMs: 5_000, isEmpty: () => counts.size === 0, write })

/** Counts a request to an existing project at `at`, in epoch milliseconds. Counts are written together a few seconds later; a crash loses them. */
export function countRequest(scope: RequestScope, projectRef: string, service: Count['service'], at: number): void {
  const minute = at - (at % MINUTE_MS)
  const key = `${projectRef} ${service} ${minute}`
  const known = counts.get(key)
  if (known) known.requests += 1
  else if (counts.size < COUNTS_MAX) counts.set(key, { projectRef, service, minute, requests: 1 })
  else dropped += 1
  writeSoon(scope)
}

/** Writes all counts in one statement. Requests that arrive meanwhile are counted by the next one. */
async function write({ db, log }: SystemCtx): Promise<void> {
  const rows = [...counts.values()]
  counts = new Map()
  try {
    // Sorted, so that isolates lock the rows in the same order and cannot deadlock.
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
