import { randomUUID } from 'node:crypto'
import { auditLog } from '../../src/model/tables/index.ts'
import { type NewEvent, publish } from '../../src/outbound/events/publish.ts'
import { DATABASE_CLOCK } from '../../src/platform/db/database-clock.ts'
import type { ControlDb } from '../seed.ts'

export type Transaction = Parameters<Parameters<ControlDb['transaction']>[0]>[0]

export interface Change {
  tx: Transaction
  trace(entry: Pick<typeof auditLog.$inferInsert, 'action' | 'organizationId' | 'projectRef' | 'detail'>): Promise<void>
  publish(events: NewEvent | readonly NewEvent[]): Promise<void>
}

/**
 * Rows, audit entry and events commit together, as in the API, but in nobody's name.
 * No queue can be reached from here: the Worker's sweeper finds the deliveries and sends them.
 */
export const change = <T>(db: ControlDb, work: (change: Change) => Promise<T>): Promise<T> =>
  db.transaction((tx) =>
    work({
      tx,
      trace: async (entry) => {
        await tx.insert(auditLog).values({ ...entry, requestId: randomUUID(), createdAt: new Date() })
      },
      publish: async (events) => {
        await publish(tx, events, { actorUserId: undefined, now: DATABASE_CLOCK })
      },
    }),
  )
