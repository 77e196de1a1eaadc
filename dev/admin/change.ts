import { randomUUID } from 'node:crypto'
import { auditLog } from '../../src/model/tables/index.ts'
import { type NewEvent, publish } from '../../src/outbound/events/publish.ts'
import { DATABASE_CLOCK } from '../../src/platform/db/database-clock.ts'
import { ApiError } from '../../src/platform/http/error.ts'
import type { ControlDb } from '../seed.ts'
import { StartError } from '../start-error.ts'

export type Transaction = Parameters<Parameters<ControlDb['transaction']>[0]>[0]

export interface Change {
  tx: Transaction
  trace(entry: Pick<typeof auditLog.$inferInsert, 'action' | 'organizationId' | 'projectRef' | 'detail'>): Promise<void>
  publish(events: NewEvent | readonly NewEvent[]): Promise<void>
  enqueue(): void
  wake(): void
}

/**
 * Commits rows, audit entry and events in one transaction, as the API does, but without an actor.
 * Commands cannot reach the queues, so the Worker's sweeper starts what is due.
 */
export async function change<T>(db: ControlDb, work: (change: Change) => Promise<T>): Promise<T> {
  try {
    return await db.transaction((tx) =>
      work({
        tx,
        trace: async (entry) => {
          await tx.insert(auditLog).values({ ...entry, requestId: randomUUID(), createdAt: new Date() })
        },
        publish: async (events) => {
          await publish(tx, events, { actorUserId: undefined, now: DATABASE_CLOCK })
        },
        enqueue: () => {},
        wake: () => {},
      }),
    )
  } catch (error) {
    if (!(error instanceof ApiError)) throw error
    throw new StartError(error.detail ? `${error.message}: ${error.detail}` : error.message)
  }
}
