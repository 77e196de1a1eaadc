import { createCtx } from '../ctx.ts'
import type { Bindings, SystemCtx } from '../env.ts'
import { describeError } from '../http/log.ts'
import { Message } from './message.ts'

type Of<T extends Message['type']> = Extract<Message, { type: T }>

/** What each kind of message does, and what becomes of it when it failed too often. */
export type Handlers = {
  [T in Message['type']]: {
    run(ctx: SystemCtx, message: Of<T>): Promise<void>
    bury?(ctx: SystemCtx, message: Of<T>): Promise<void>
  }
}

interface Handler {
  run(ctx: SystemCtx, message: Message): Promise<void>
  bury?(ctx: SystemCtx, message: Message): Promise<void>
}

/** Safe: the handler is looked up by the very type that the message carries. */
const handlerOf = (handlers: Handlers, { type }: Message) => handlers[type] as unknown as Handler

const RETRY_SECONDS_MAX = 300

/**
 * Each message succeeds or is tried again by itself; one that does not parse is dropped with a log line.
 * What a batch holds twice is done once.
 */
export const createConsumer = (handlers: Handlers) =>
  async function consume(batch: MessageBatch, bindings: Bindings, execution: ExecutionContext): Promise<void> {
    const dead = batch.queue.endsWith('-dead')
    const ctx = createCtx({ bindings, waitUntil: (work) => execution.waitUntil(work) })
    const begun = new Map<string, Promise<void>>()

    async function handle(message: Message): Promise<void> {
      const { run, bury } = handlerOf(handlers, message)
      if (dead) ctx.log.error('message_dead', { ...message })
      await (dead ? bury?.(ctx, message) : run(ctx, message))
    }

    function handleOnce(message: Message): Promise<void> {
      const key = JSON.stringify(message)
      const work = begun.get(key) ?? handle(message)
      begun.set(key, work)
      return work
    }

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
          ctx.log.error('message_failed', { queue: batch.queue, ...parsed.data, error: describeError(error) })
          message.retry({ delaySeconds: Math.min(2 ** message.attempts, RETRY_SECONDS_MAX) })
        }
      }),
    )
  }
