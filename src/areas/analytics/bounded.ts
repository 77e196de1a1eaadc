import { type SQL, sql } from 'drizzle-orm'
import { postgresFailure } from '../../db/failure.ts'
import type { Ctx } from '../../env.ts'
import { QueryError } from './sql/tokens.ts'

const TIMEOUT_MS = 5_000
const TIMED_OUT = '57014'

/** Runs what reads as many rows as a caller chooses: bounded in time, and unable to write whatever it says. Throws QueryError. */
export async function readBounded<Row>({ db }: Pick<Ctx, 'db'>, statement: SQL): Promise<Row[]> {
  const bounds = sql`select set_config('statement_timeout', ${String(TIMEOUT_MS)}, true),
    set_config('transaction_read_only', 'on', true)`
  try {
    const [, answered] = await db.batch([db.execute(bounds), db.execute(statement)])
    return answered.rows as Row[]
  } catch (error) {
    if (postgresFailure(error)?.code !== TIMED_OUT) throw error
    throw new QueryError(`it took more than ${TIMEOUT_MS / 1_000} s: ask for less time, or less of it`)
  }
}
