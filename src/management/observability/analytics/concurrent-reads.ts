import { type SQL, sql } from 'drizzle-orm'
import type { Ctx } from '../../../ctx.ts'
import { withConnectionSlot } from '../../../engine/connection-limit.ts'
import { EngineUnavailable } from '../../../engine/engine.ts'
import { postgresFailure } from '../../../platform/db/postgres-errors.ts'
import { QueryError } from './sql/tokens.ts'

const TIMEOUT_MS = 5_000
const TIMED_OUT = '57014'

const WAIT_MS = 4_000
const OF_PROJECT_MAX = 2
const OF_ALL_MAX = 6

/** Each holds a connection that all other requests need, for as long as its caller likes. */
const atATime = <Value>(ref: string, work: () => Promise<Value>): Promise<Value> => {
  const bounds = { waitMs: WAIT_MS, runMs: 2 * TIMEOUT_MS }
  const ofAll = () => withConnectionSlot('logs', { ...bounds, max: OF_ALL_MAX }, work)
  return withConnectionSlot(`logs of ${ref}`, { ...bounds, max: OF_PROJECT_MAX }, ofAll)
}

/** Runs what reads as many rows as a caller chooses: bounded in time, and unable to write whatever it says. Throws QueryError. */
export async function readBounded<Row>({ db }: Pick<Ctx, 'db'>, ref: string, statement: SQL): Promise<Row[]> {
  const bounds = sql`select set_config('statement_timeout', ${String(TIMEOUT_MS)}, true),
    set_config('transaction_read_only', 'on', true)`
  try {
    const [, answered] = await atATime(ref, () => db.batch([db.execute(bounds), db.execute(statement)]))
    return answered.rows as Row[]
  } catch (error) {
    if (error instanceof EngineUnavailable) throw new QueryError('too many queries of logs run now: try again')
    if (postgresFailure(error)?.code !== TIMED_OUT) throw error
    throw new QueryError(`it took more than ${TIMEOUT_MS / 1_000} s: ask for less time, or less of it`)
  }
}
