import type { SystemCtx } from '../ctx.ts'
import { createCtx } from '../ctx.ts'
import type { Bindings } from '../platform/bindings.ts'
import type { LogFields } from '../platform/http/log.ts'
import { describeError } from '../platform/http/log.ts'
import { Message } from '../platform/queue/message.ts'

type Of<T extends Message['type']> = Extract<Message, { type: T }>

/** What each kind of message does, and what becomes of it when it failed too often. */
export type Handlers = {
  [T in Message['type']]: {
    run(ctx: SystemCtx, message: Of<T>): Promise<void>
    bury?(ctx: SystemCtx, message: Of<T>): Promise<void>
    /**
     * Of work that may take hours and that a sweeper comes to again if it dies: how much of it may outlive its messages in
     * one isolate. Without it a message is done when its work is.
     */
    looseMax?: number
  }
}

interface Handler {
  run(ctx: SystemCtx, message: Message): Promise<void>
  bury?(ctx: SystemCtx, message: Message): Promise<void>
  looseMax?: number
}

/** Safe: the handler is looked up by the very type that the message carries. */
const handlerOf = (handlers: Handlers, { type }: Message) => handlers[type] as unknown as Handler

/** The time of a heartbeat is not that of the line. */
const fieldsOf = (message: Message): LogFields =>
  message.type === 'heartbeat' ? { type: message.type, sent_at: new Date(message.at) } : { ...message }

const RETRY_SECONDS_MAX = 300
/** Most work is done by then. */
const LOOSE_AFTER_MS = 1_000
/**
 * Set under `npm start`, whose broker gives out one batch at a time: there work outlives its batch. On Cloudflare it would be
 * ended 30 s after its batch, which itself may take 15 minutes and has others beside it.
 */
const CAN_OUTLIVE_BATCH =
  typeof Cloudflare !== 'undefined' && Cloudflare.compatibilityFlags.queue_consumer_no_wait_for_wait_until === true

/**
 * Each message succeeds or is tried again by itself; one that does not parse is dropped with a log line.
 * What a batch holds twice is done once.
 */
export function createConsumer(handlers: Handlers) {
  /** How much of each type outlives its batch in this isolate. */
  const loose = new Map<Message['type'], number>()

  return async function consume(batch: MessageBatch, bindings: Bindings, execution: ExecutionContext): Promise<void> {
    const dead = batch.queue.endsWith('-dead')
    const ctx = createCtx({ bindings, waitUntil: (work) => execution.waitUntil(work) })
    const begun = new Map<string, Promise<void>>()

    async function handle(message: Message): Promise<void> {
      const { run, bury } = handlerOf(handlers, message)
      if (!dead) return letLoose(message, run(ctx, message))
      ctx.log.error('message_dead', fieldsOf(message))
      await bury?.(ctx, message)
    }

    /** Waits for the work, or only for a while where it may go on without its message. */
    async function letLoose(message: Message, work: Promise<void>): Promise<void> {
      const { looseMax = 0 } = handlerOf(handlers, message)
      const { type } = message
      const count = () => loose.get(type) ?? 0
      if (!CAN_OUTLIVE_BATCH || looseMax === 0) return work
      do {
        if (await endsWithin(work, LOOSE_AFTER_MS)) return
      } while (count() >= looseMax)
      loose.set(type, count() + 1)
      const end = work.catch((error) => logFailure(message, error)).finally(() => loose.set(type, count() - 1))
      execution.waitUntil(end)
    }

    function handleOnce(message: Message): Promise<void> {
      const key = JSON.stringify(message)
      const work = begun.get(key) ?? handle(message)
      begun.set(key, work)
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

async function endsWithin(work: Promise<void>, ms: number): Promise<boolean> {
  let timer: ReturnType<typeof setTimeout> | undefined
  const over = new Promise<false>((resolve) => {
    timer = setTimeout(resolve, ms, false)
  })
  return Promise.race([work.then(() => true), over]).finally(() => clearTimeout(timer))
}
