import { sql } from 'drizzle-orm'
import { expect, vi } from 'vitest'
import { control } from './api.ts'
import { WAIT } from './machine.ts'

export type Transaction = Parameters<Parameters<typeof control.transaction>[0]>[0]

/** Starts the request and returns it once it waits for this transaction. */
export async function untilBlocked<T>(tx: Transaction, ask: () => Promise<T>): Promise<{ asked: Promise<T> }> {
  const { rows } = await tx.execute(sql`select pg_backend_pid() as pid`)
  const waiting = sql`select from pg_stat_activity where ${rows[0]?.pid}::int = any (pg_blocking_pids(pid))`
  const asked = ask()
  await vi.waitFor(async () => expect((await control.execute(waiting)).rows.length).toBeGreaterThan(0), WAIT)
  return { asked }
}
