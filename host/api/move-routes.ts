import * as z from 'zod'
import type { InstancePool } from '../instances/instances.ts'
import type { Moves } from '../moves/moves.ts'
import { mutation, type Route, route } from './api.ts'

const Arrival = z.strictObject({
  version: z.string().optional(),
  size: z.string().optional(),
  sleep_after_seconds: z.int().min(1).nullable().optional(),
  is_paused: z.boolean().default(false),
  /** Recovers the instance to this moment, or to the end of the archive if that comes first. */
  at: z.coerce.date().optional(),
  /** When the source last discarded WAL. A temporary backup has not ended that gap. */
  wal_discarded_at: z.iso.datetime().optional(),
  settings: z.record(z.string(), z.string()).default({}),
  access: z.strictObject({ ssl: z.boolean(), networks: z.array(z.string()).nullable() }).optional(),
})
/** Without an `lsn`, the instance gets all that the archive holds. */
const End = z.strictObject({
  lsn: z
    .string()
    .regex(/^[0-9A-F]+\/[0-9A-F]+$/)
    .optional(),
})

interface Parts {
  pool: InstancePool
  moves: Moves
  /** Ends the sessions of clients, before the instance stops. */
  endSessions(name: string): void
}

/** Moves of instances from this host and to it. */
export function moveRoutes({ pool, moves, endSessions }: Parts): Route[] {
  return [
    route('GET', '/sealed', async () =>
      pool.list().flatMap(({ name, record: { sealed } }) => (sealed ? [{ name, sealed }] : [])),
    ),
    mutation('POST', '/instances/{name}/seal', async ({ name }) => {
      endSessions(name)
      return moves.seal(name)
    }),
    mutation('POST', '/instances/{name}/unseal', ({ name }) => moves.unseal(name)),
    mutation('PUT', '/instances/{name}/arrival', async ({ name, body }) => {
      const {
        version: major,
        sleep_after_seconds: sleepAfterSeconds,
        is_paused: isPaused,
        wal_discarded_at: walDiscardedAt,
        at,
        ...rest
      } = await body(Arrival)
      const spec = { name, major, sleepAfterSeconds, isPaused, walDiscardedAt, ...rest }
      await (at ? moves.receiveAt(spec, at) : moves.receive(spec))
    }),
    mutation('POST', '/instances/{name}/arrival/finish', async ({ name, body }) =>
      moves.finish(name, (await body(End)).lsn),
    ),
    mutation(
      'DELETE',
      '/instances/{name}/arrival',
      ({ name }) => moves.discard(name),
      ({ name }) => moves.cancel(name),
    ),
  ]
}
