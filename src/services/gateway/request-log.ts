import { sql } from 'drizzle-orm'
import type { SystemCtx } from '../../ctx.ts'
import type { storageRequests } from '../../model/tables/index.ts'
import type { Db } from '../../platform/db/client.ts'
import { createRowLimit, PROJECT_ROWS } from './row-limit.ts'
import { createWriteBehind, PORTION, type RequestScope, writeInHalves } from './write-behind.ts'

/** Both tables have the same columns. */
type Table = 'storage_requests' | 'data_api_requests'

type Row = Omit<typeof storageRequests.$inferSelect, 'at'> & {
  /** Epoch milliseconds. */
  at: number
}

const PATH_LENGTH_MAX = 1_024
const PENDING_MAX = 20_000

/** Returns a function that records a finished request. Rows are written later, in batches. */
export function createRequestLog(table: Table) {
  const claimRow = createRowLimit(PROJECT_ROWS)
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
    const skipped = claimRow(request.projectRef, request.at)
    if (skipped === undefined) return
    if (pending.length < PENDING_MAX) {
      pending.push({ ...request, path: path.slice(0, PATH_LENGTH_MAX), skipped })
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
