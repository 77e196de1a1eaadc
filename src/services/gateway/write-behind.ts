import type { SystemCtx } from '../../ctx.ts'
import { createCtx } from '../../ctx.ts'
import type { Bindings } from '../../platform/bindings.ts'
import type { Db } from '../../platform/db/client.ts'
import { isWrongData } from '../../platform/db/postgres-errors.ts'
import { describeError } from '../../platform/http/log.ts'

/** The request that adds a row; its `waitUntil` keeps the write alive. */
export interface RequestScope {
  bindings: Bindings
  execution: Pick<ExecutionContext, 'waitUntil'>
}

/** Time for which one request writes the rows of all others; the runtime may end it soon after. */
const WRITER_MS_MAX = 20_000
/** Maximum rows of one statement. */
export const PORTION = 1_000

interface Pending {
  /** Time in which rows are collected before each write. */
  delayMs?: number
  isEmpty(): boolean
  write(ctx: SystemCtx): Promise<void>
}

/**
 * Writes rows that requests left in memory, in batches and after their replies. The returned function must be called after each added row.
 * It keeps at most one request alive at a time.
 */
export function createWriteBehind({ delayMs = 500, isEmpty, write }: Pending): (scope: RequestScope) => void {
  let writingSince = 0

  async function writeUntilEmpty(ctx: SystemCtx): Promise<void> {
    const since = Date.now()
    try {
      do {
        await scheduler.wait(delayMs)
        await write(ctx)
      } while (!isEmpty() && Date.now() - since < WRITER_MS_MAX)
    } finally {
      writingSince = 0
    }
  }

  return function writeSoon({ bindings, execution }) {
    const now = Date.now()
    if (writingSince > 0 && now - writingSince < 2 * WRITER_MS_MAX) return
    writingSince = now
    const waitUntil = (work: Promise<unknown>) => execution.waitUntil(work)
    waitUntil(writeUntilEmpty(createCtx({ bindings, waitUntil })))
  }
}

type Send<T> = (db: Db, rows: readonly T[]) => Promise<unknown>

/** Returns the number of lost rows. A batch with invalid data is halved and retried, so that one invalid row does not lose the others. */
export async function writeInHalves<T>(
  ctx: SystemCtx,
  code: string,
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
      const lost = await writeInHalves(ctx, code, rows.slice(0, half), send)
      return lost + (await writeInHalves(ctx, code, rows.slice(half), send))
    }
    ctx.log.error('failed', { code, error: describeError(error) })
    return rows.length
  }
}
