import type { SystemCtx } from '../../ctx.ts'
import { createCtx } from '../../ctx.ts'
import type { Bindings } from '../../platform/bindings.ts'
import type { Db } from '../../platform/db/client.ts'
import { isWrongData } from '../../platform/db/postgres-errors.ts'
import { describeError } from '../../platform/http/log.ts'

/** The request that leaves something to be written. */
export interface Host {
  bindings: Bindings
  execution: Pick<ExecutionContext, 'waitUntil'>
}

const WRITTEN_AFTER_MS = 500
/** One request writes for the others for this long; its runtime may end it later. */
const WRITES_FOR_MS = 20_000
/** Most rows of one statement. */
export const PORTION = 1_000

interface Pending {
  isEmpty(): boolean
  write(ctx: SystemCtx): Promise<void>
}

/**
 * Writes what requests leave in memory, in batches and after their replies. The returned function is called after each change;
 * at most one request at a time is kept alive by it.
 */
export function createWriteBehind({ isEmpty, write }: Pending): (host: Host) => void {
  let writingSince = 0

  async function writeUntilEmpty(ctx: SystemCtx): Promise<void> {
    const since = Date.now()
    try {
      do {
        await scheduler.wait(WRITTEN_AFTER_MS)
        await write(ctx)
      } while (!isEmpty() && Date.now() - since < WRITES_FOR_MS)
    } finally {
      writingSince = 0
    }
  }

  return function writeSoon({ bindings, execution }) {
    const now = Date.now()
    if (writingSince > 0 && now - writingSince < 2 * WRITES_FOR_MS) return
    writingSince = now
    const waitUntil = (work: Promise<unknown>) => execution.waitUntil(work)
    waitUntil(writeUntilEmpty(createCtx({ bindings, waitUntil })))
  }
}

type Send<T> = (db: Db, rows: readonly T[]) => Promise<unknown>

/** Returns how many rows were lost. A row that the database does not take must not take others along: halves are tried. */
export async function writeInHalves<T>(
  ctx: SystemCtx,
  what: string,
  rows: readonly T[],
  send: Send<T>,
): Promise<number> {
  const attempt = () => send(ctx.db, rows)
  try {
    await attempt().catch(attempt)
    return 0
  } catch (error) {
    if (rows.length > 1 && isWrongData(error)) {
      const half = Math.ceil(rows.length / 2)
      const lost = await writeInHalves(ctx, what, rows.slice(0, half), send)
      return lost + (await writeInHalves(ctx, what, rows.slice(half), send))
    }
    ctx.log.error('failed', { code: what, error: describeError(error) })
    return rows.length
  }
}
