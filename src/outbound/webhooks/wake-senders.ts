import type { SystemCtx } from '../../ctx.ts'
import { forEachConcurrently } from '../../platform/for-each-concurrently.ts'
import { describeError } from '../../platform/http/log.ts'
import type { Message } from '../../platform/queue/message.ts'
import { send } from '../../platform/queue/send.ts'

export type Wake = Extract<Message, { type: 'webhook' }>

export const wakeSender = ({ bindings: { WEBHOOK_SENDERS: senders } }: SystemCtx, { endpointId, swept, asked }: Wake) =>
  senders.get(senders.idFromName(endpointId)).wake(endpointId, { swept, asked })

const CONCURRENCY = 8

type SenderStub = ReturnType<SystemCtx['bindings']['WEBHOOK_SENDERS']['get']>

/** Calls senders with limited concurrency. An unreachable one is logged and does not stop the others. */
const callEach = (
  { bindings: { WEBHOOK_SENDERS: senders }, log }: SystemCtx,
  endpointIds: readonly string[],
  call: (sender: SenderStub, endpointId: string) => Promise<void>,
): Promise<void> =>
  forEachConcurrently(endpointIds, CONCURRENCY, (endpoint) =>
    call(senders.get(senders.idFromName(endpoint)), endpoint).catch((error) =>
      log.error('webhook_sender_unreachable', { endpoint, error: describeError(error) }),
    ),
  )

/** Ends the senders of deleted endpoints. An unreachable sender only keeps a few bytes of storage. */
export const endSenders = (ctx: SystemCtx, endpointIds: readonly string[]): Promise<void> =>
  callEach(ctx, endpointIds, (sender) => sender.end())

/** Wakes senders directly if the queue fails. The next sweep retries unreachable ones. */
export const wakeSwept = (ctx: SystemCtx, endpointIds: readonly string[]): Promise<void> =>
  callEach(ctx, endpointIds, (sender, endpointId) => sender.wake(endpointId, { swept: true }))

/** The maximum number of direct calls per commit; beyond that, a queue message is cheaper. */
const DIRECT_MAX = 8

/** Wakes the senders of endpoints with new deliveries: the first few directly, the others and unreachable ones through the queue. */
export async function wakeSenders(
  ctx: SystemCtx,
  endpointIds: readonly string[],
  options: Pick<Wake, 'asked'> = {},
): Promise<void> {
  const wakes = [...new Set(endpointIds)].map((endpointId): Wake => ({ type: 'webhook', endpointId, ...options }))
  const direct = wakes.slice(0, DIRECT_MAX)
  // Runs concurrently with the calls, one of which may hang.
  const others = send(ctx, wakes.slice(DIRECT_MAX))
  const calls = await Promise.allSettled(direct.map((wake) => wakeSender(ctx, wake)))
  await send(
    ctx,
    direct.filter((_, n) => calls[n]?.status === 'rejected'),
  )
  await others
}
