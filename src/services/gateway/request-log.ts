import { sql } from 'drizzle-orm'
import type { SystemCtx } from '../../ctx.ts'
import type { storageRequests } from '../../model/tables/index.ts'
import { BoundedMap } from '../../platform/bounded-map.ts'
import type { Db } from '../../platform/db/client.ts'
import { createTokenBuckets } from './token-bucket.ts'
import { createWriteBehind, PORTION, type RequestScope, writeInHalves } from './write-behind.ts'

/** Both tables have the same columns. */
type Table = 'storage_requests' | 'data_api_requests'

type Row = Omit<typeof storageRequests.$inferSelect, 'at'> & {
  /** Epoch milliseconds. */
  at: number
}

const PATH_LENGTH_MAX = 1_024
const PENDING_MAX = 20_000
const PROJECTS_MAX = 10_000

/** Returns a function that records a finished request. Rows are written later, in batches. */
export function createRequestLog(table: Table) {
  /** Bounds the rows of a project. They are stored for a week, and the number of requests has no limit. */
  const takeRow = createTokenBuckets({ max: 5_000, perMinute: 1_000 })
  /** By project, the number of requests since its last row that were not logged. */
  const skipped = new BoundedMap<string, number>(PROJECTS_MAX)
  let pending: Row[] = []
  let dropped = 0
  const writeSoon = createWriteBehind({ isEmpty: () => pending.length === 0, write })

  async function write(ctx: SystemCtx): Promise<void> {
    const rows = pending
    pending = []
    for (let start = 0; start < rows.length; start += PORTION) {
      dropped += await writeInHalves(ctx, table, rows.slice(start, start + PORTION), insertInto(table))
    }
    if (dropped > 0) ctx.log.error(`${table}_dropped`, { requests: dropped })
    dropped = 0
  }

  return function logRequest(scope: RequestScope, { path, ...request }: Omit<Row, 'skipped'>): void {
    const { projectRef, at } = request
    const before = skipped.get(projectRef) ?? 0
    if (!takeRow(projectRef, 1, at)) {
      skipped.set(projectRef, before + 1)
      return
    }
    if (before > 0) skipped.delete(projectRef)
    if (pending.length < PENDING_MAX) {
      pending.push({ ...request, path: path.slice(0, PATH_LENGTH_MAX), skipped: before })
    } else dropped += 1
    writeSoon(scope)
  }
}

const insertInto = (table: Table) => (db: Db, rows: readonly Row[]) =>
  db.execute(sql`
    insert into ${sql.identifier(table)} (id, project_ref, method, path, status, ms, error, skipped, at)
    select id, "projectRef", method, path, status, ms, error, skipped, to_timestamp(at / 1000)
    from json_to_recordset(${JSON.stringify(rows)}::json) as r (id uuid, "projectRef" text, method text, path text,
      status int, ms int, error text, skipped int, at double precision)
    on conflict do nothing`)
