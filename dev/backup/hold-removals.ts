import pg from 'pg'
import { REMOVALS_LOCK } from '../../src/platform/removals.ts'
import { StartError } from '../start-error.ts'

const PING_INTERVAL_MS = 20_000

export interface Hold {
  /** Rejects if the hold was lost, so that removals may have continued. */
  check(): Promise<void>
  release(): Promise<void>
}

/** Stops removals of bytes, databases and archives until `release`. Waits for removals under way. */
export async function holdRemovals(controlUrl: string): Promise<Hold> {
  const client = new pg.Client({ connectionString: controlUrl })
  let lost: unknown
  client.on('error', (error) => {
    lost = error
  })
  await client.connect()
  await client.query(`SELECT pg_advisory_lock(${REMOVALS_LOCK})`)
  // Detects a lost session, and keeps the connection from being closed as idle.
  const clock = setInterval(() => client.query('SELECT').catch((error) => (lost = error)), PING_INTERVAL_MS)
  return {
    async check() {
      await client.query('SELECT').catch((error) => (lost = error))
      if (lost) throw new StartError(`The control database was lost meanwhile (${lost}): make the backup again.`)
    },
    async release() {
      clearInterval(clock)
      await client.end()
    },
  }
}
