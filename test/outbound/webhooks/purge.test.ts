import { expect, it } from 'vitest'
import type { SystemCtx } from '../../../src/ctx.ts'
import { webhookDeliveries, webhookEvents } from '../../../src/model/tables/index.ts'
import { purgeExpired } from '../../../src/outbound/webhooks/purge.ts'
import { newTimedId } from '../../../src/platform/db/id.ts'
import { START, useOutbox } from './outbox.ts'

const DAY_MS = 86_400_000

const outbox = useOutbox()

const idDaysAgo = (days: number) => newTimedId(new Date(START - days * DAY_MS))

it('the purge deletes deliveries after 14 days and events after 30, and reports deliveries that were never sent', async () => {
  const endpointId = await outbox.newEndpoint()
  const { organizationId = '' } = (await outbox.endpointRow(endpointId)) ?? {}
  const [oldEvent, event] = [idDaysAgo(31), idDaysAgo(29)]
  const published = { organizationId, type: 'v1.project.paused' as const, payload: {}, publishedAt: new Date(START) }
  await outbox.db.insert(webhookEvents).values([oldEvent, event].map((id) => ({ id, ...published })))
  const [sent, unsent, kept] = [idDaysAgo(16), idDaysAgo(15), idDaysAgo(13)]
  const delivery = {
    eventId: event,
    endpointId,
    trigger: 'event' as const,
    nextAt: new Date(START),
    createdAt: new Date(START),
  }
  await outbox.db.insert(webhookDeliveries).values([
    { ...delivery, id: sent, messageId: sent, status: 'success' },
    { ...delivery, id: unsent, messageId: unsent },
    { ...delivery, id: kept, messageId: kept },
  ])
  const lines: unknown[] = []
  const note = (name: string, fields: unknown) => void lines.push([name, fields])
  const ctx = { db: outbox.db, now: () => new Date(START), log: { info: note, error: note } } as unknown as SystemCtx
  await purgeExpired(ctx)
  expect((await outbox.db.select().from(webhookEvents)).map(({ id }) => id)).toEqual([event])
  expect((await outbox.rowsOf(endpointId)).map(({ id }) => id)).toEqual([kept])
  expect(lines).toEqual([
    ['webhooks_purged', { deliveries: 2, events: 1 }],
    ['webhooks_expired_unsent', { deliveries: 1 }],
  ])
  await purgeExpired(ctx)
  expect(lines).toHaveLength(2)
})
