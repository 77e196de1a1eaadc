import pg from 'pg'
import { REMOVALS_LOCK } from '../../src/platform/removals.ts'
import { StartError } from '../start-error.ts'

const ASKED_MS = 20_000

export interface Hold {
  /** Rejects if removals may have gone on meanwhile. */
  check(): Promise<void>
  release(): Promise<void>
}

/** From here on no bytes, databases or archives are removed. Waits for removals that have begun. */
export async function holdRemovals(controlUrl: string): Promise<Hold> {
  const client = new pg.Client({ connectionString: controlUrl })
  let lost: unknown
  client.on('error', (error) => {
    lost = error
  })
  await client.connect()
  await client.query(`SELECT pg_advisory_lock(${REMOVALS_LOCK})`)
  // Shows that the session lasts, also to what may end idle connections on the way.
  const clock = setInterval(() => client.query('SELECT').catch((error) => (lost = error)), ASKED_MS)
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
