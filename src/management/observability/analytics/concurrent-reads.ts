import { type SQL, sql } from 'drizzle-orm'
import type { Ctx } from '../../../ctx.ts'
import { withConnectionSlot } from '../../../engine/connection-limit.ts'
import { EngineUnavailable } from '../../../engine/engine-errors.ts'
import { postgresFailure } from '../../../platform/db/postgres-errors.ts'
import { QueryError } from './sql/tokens.ts'

const TIMEOUT_MS = 5_000
const TIMED_OUT = '57014'

const WAIT_MS = 4_000
const PER_PROJECT_MAX = 2
const TOTAL_MAX = 6

/** Limits concurrent log queries: each holds a connection that other requests need, for as long as its caller chooses. */
const limitConcurrency = <Value>(ref: string, work: () => Promise<Value>): Promise<Value> => {
  const bounds = { waitMs: WAIT_MS, runMs: 2 * TIMEOUT_MS }
  const inTotalLimit = () => withConnectionSlot('logs', { ...bounds, max: TOTAL_MAX }, work)
  return withConnectionSlot(`logs of ${ref}`, { ...bounds, max: PER_PROJECT_MAX }, inTotalLimit)
}

/** Runs a statement derived from a caller's query, read-only and with a timeout. Throws QueryError. */
export async function readBounded<Row>({ db }: Pick<Ctx, 'db'>, ref: string, statement: SQL): Promise<Row[]> {
  const bounds = sql`select set_config('statement_timeout', ${String(TIMEOUT_MS)}, true),
    set_config('transaction_read_only', 'on', true)`
  try {
    const [, reply] = await limitConcurrency(ref, () => db.batch([db.execute(bounds), db.execute(statement)]))
    return reply.rows as Row[]
  } catch (error) {
    if (error instanceof EngineUnavailable) throw new QueryError('too many log queries are running: try again')
    if (postgresFailure(error)?.code !== TIMED_OUT) throw error
    throw new QueryError(`the query took more than ${TIMEOUT_MS / 1_000} s: select a shorter time range or fewer rows`)
  }
}
