import type { Bindings, SystemCtx } from '../env.ts'
import type { Message } from './message.ts'

/** What the platform takes in one batch. */
const BATCH_MAX = 100

const queueOf = ({ PROJECT_TASKS, WEBHOOK_DELIVERIES }: Bindings, { type }: Message) =>
  type === 'webhook' ? WEBHOOK_DELIVERIES : PROJECT_TASKS

/** Sends hints of work that the database holds already: what is not taken is logged and left to the sweeper. */
export async function send({ bindings, log }: SystemCtx, messages: readonly Message[]): Promise<void> {
  const byQueue = Map.groupBy(messages, (message) => queueOf(bindings, message))
  for (const [queue, all] of byQueue) {
    for (let start = 0; start < all.length; start += BATCH_MAX) {
      const batch = all.slice(start, start + BATCH_MAX).map((body) => ({ body }))
      await queue
        .sendBatch(batch)
        .catch((error) => log.error('enqueue_failed', { count: batch.length, error: String(error) }))
    }
  }
}
