import type { SystemCtx } from '../ctx.ts'
import { createCtx } from '../ctx.ts'
import type { Bindings } from '../platform/bindings.ts'
import type { LogFields } from '../platform/http/log.ts'
import { describeError } from '../platform/http/log.ts'
import { Message } from '../platform/queue/message.ts'
import { awaitWithin } from '../platform/timeout.ts'

interface Handler<M> {
  run(ctx: SystemCtx, message: M): Promise<void>
  /** Called when the message reaches the dead-letter queue. */
  handleDead?(ctx: SystemCtx, message: M): Promise<void>
  /**
   * Number of runs that may go on in one isolate after their messages are acknowledged. For work that takes hours and that a
   * sweeper restarts after a crash. Without it, a message is acknowledged when its work ends.
   */
  detachedMax?: number
}

/** The handler of each message type. */
export type Handlers = { [T in Message['type']]: Handler<Extract<Message, { type: T }>> }

/** The cast is safe: the handler is looked up by the type of the message. */
const handlerOf = (handlers: Handlers, { type }: Message) => handlers[type] as Handler<Message>

/** A heartbeat's `at` is logged as `sent_at`, since `at` is the time of the log line. */
const fieldsOf = (message: Message): LogFields =>
  message.type === 'heartbeat' ? { type: message.type, sent_at: new Date(message.at) } : { ...message }

const RETRY_SECONDS_MAX = 300
/** Work that runs for longer is detached from its message. Most work ends before. */
const DETACH_AFTER_MS = 1_000
/**
 * True under `npm start`, whose broker delivers one batch at a time, so long work must not block the batch. Cloudflare would end
 * detached work 30 s after its batch; there a batch may take 15 minutes and batches run concurrently.
 */
const CAN_OUTLIVE_BATCH =
  typeof Cloudflare !== 'undefined' && Cloudflare.compatibilityFlags.queue_consumer_no_wait_for_wait_until === true

/**
 * Creates the queue consumer. Each message is acknowledged or retried on its own; an invalid message is logged and dropped.
 * Duplicates within a batch run once.
 */
export function createConsumer(handlers: Handlers) {
  /** Number of detached runs in this isolate, by message type. */
  const detached = new Map<Message['type'], number>()

  return async function consume(batch: MessageBatch, bindings: Bindings, execution: ExecutionContext): Promise<void> {
    const isDeadLetterQueue = batch.queue.endsWith('-dead')
    const ctx = createCtx({ bindings, waitUntil: (work) => execution.waitUntil(work) })
    const started = new Map<string, Promise<void>>()

    async function handle(message: Message): Promise<void> {
      const { run, handleDead } = handlerOf(handlers, message)
      if (!isDeadLetterQueue) return awaitOrDetach(message, () => run(ctx, message))
      ctx.log.error('message_dead', fieldsOf(message))
      await handleDead?.(ctx, message)
    }

    /**
     * Waits for the work to end or, if its type may be detached, until it has run for a while. While all slots for detached work
     * are taken, the message is dropped: its task stays due, and the sweeper sends it again.
     */
    async function awaitOrDetach(message: Message, run: () => Promise<void>): Promise<void> {
      const { detachedMax = 0 } = handlerOf(handlers, message)
      const { type } = message
      const count = () => detached.get(type) ?? 0
      if (!CAN_OUTLIVE_BATCH || detachedMax === 0) return run()
      if (count() >= detachedMax) return
      const work = run()
      if (await awaitWithin(DETACH_AFTER_MS, work)) return
      detached.set(type, count() + 1)
      const end = work.catch((error) => logFailure(message, error)).finally(() => detached.set(type, count() - 1))
      execution.waitUntil(end)
    }

    function handleOnce(message: Message): Promise<void> {
      const key = JSON.stringify(message)
      const work = started.get(key) ?? handle(message)
      started.set(key, work)
      return work
    }

    const logFailure = (message: Message, error: unknown) =>
      ctx.log.error('message_failed', { queue: batch.queue, ...fieldsOf(message), error: describeError(error) })

    await Promise.all(
      batch.messages.map(async (message) => {
        const parsed = Message.safeParse(message.body)
        if (!parsed.success) {
          ctx.log.error('message_dropped', { queue: batch.queue, error: parsed.error.message })
          return message.ack()
        }
        try {
          await handleOnce(parsed.data)
          message.ack()
        } catch (error) {
          logFailure(parsed.data, error)
          message.retry({ delaySeconds: Math.min(2 ** message.attempts, RETRY_SECONDS_MAX) })
        }
      }),
    )
  }
}
