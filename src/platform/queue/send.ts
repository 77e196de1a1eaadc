import type { Bindings } from '../bindings.ts'
import type { PlatformCtx } from '../context.ts'
import type { Message } from './message.ts'

/** Limit of Cloudflare Queues. */
const BATCH_MAX = 100

function queueOf({ PROJECT_TASKS, WEBHOOK_DELIVERIES, WORKER_BUILDS }: Bindings, { type }: Message) {
  if (type === 'webhook') return WEBHOOK_DELIVERIES
  return type === 'worker-task' ? WORKER_BUILDS : PROJECT_TASKS
}

/** Sends hints about work that is stored in the database. Returns the messages that the queue refused; a sweeper sends them later. */
export async function send<M extends Message>({ bindings, log }: PlatformCtx, messages: readonly M[]): Promise<M[]> {
  const refused: M[] = []
  const byQueue = Map.groupBy(messages, (message) => queueOf(bindings, message))
  for (const [queue, all] of byQueue) {
    for (let start = 0; start < all.length; start += BATCH_MAX) {
      const batch = all.slice(start, start + BATCH_MAX)
      try {
        await queue.sendBatch(batch.map((body) => ({ body })))
      } catch (error) {
        refused.push(...batch)
        log.error('enqueue_failed', { count: batch.length, error: String(error) })
      }
    }
  }
  return refused
}

/** Sends a message that is delivered after `delayMs`. */
export const sendLater = ({ bindings }: PlatformCtx, message: Message, delayMs: number): Promise<unknown> =>
  queueOf(bindings, message).send(message, { delaySeconds: Math.ceil(delayMs / 1000) })
