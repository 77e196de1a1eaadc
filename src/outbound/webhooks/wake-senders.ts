import type { SystemCtx } from '../../ctx.ts'
import { describeError } from '../../platform/http/log.ts'
import type { Message } from '../../platform/queue/message.ts'
import { send } from '../../platform/queue/send.ts'

export type Wake = Extract<Message, { type: 'webhook' }>

export const wakeSender = ({ bindings: { WEBHOOK_SENDERS: senders } }: SystemCtx, { endpointId, swept, asked }: Wake) =>
  senders.get(senders.idFromName(endpointId)).wake(endpointId, { swept, asked })

const CALLS_AT_ONCE = 8

type SenderStub = ReturnType<SystemCtx['bindings']['WEBHOOK_SENDERS']['get']>

/** A few beside each other; one that cannot be reached is logged and stops none of the others. */
async function callEach(
  { bindings: { WEBHOOK_SENDERS: senders }, log }: SystemCtx,
  endpointIds: readonly string[],
  call: (sender: SenderStub, endpointId: string) => Promise<void>,
): Promise<void> {
  for (let start = 0; start < endpointIds.length; start += CALLS_AT_ONCE) {
    const slice = endpointIds.slice(start, start + CALLS_AT_ONCE)
    const calls = await Promise.allSettled(slice.map((id) => call(senders.get(senders.idFromName(id)), id)))
    for (const [index, result] of calls.entries()) {
      if (result.status === 'fulfilled') continue
      log.error('webhook_sender_unreachable', { endpoint: slice[index], error: describeError(result.reason) })
    }
  }
}

/** For endpoints that are gone. A sender that is not reached keeps the few bytes that it has. */
export const endSenders = (ctx: SystemCtx, endpointIds: readonly string[]): Promise<void> =>
  callEach(ctx, endpointIds, (sender) => sender.end())

/** Where the queue takes nothing. Whom this does not reach the next sweep finds again. */
export const wakeSwept = (ctx: SystemCtx, endpointIds: readonly string[]): Promise<void> =>
  callEach(ctx, endpointIds, (sender, endpointId) => sender.wake(endpointId, { swept: true }))

/** Of one commit; one more call would make its request dearer than a message makes the queue. */
const DIRECT_MAX = 8

/** Wakes the senders of endpoints that have new deliveries: the first few at once, the others and those that could not be reached through the queue. */
export async function wakeSenders(
  ctx: SystemCtx,
  endpointIds: readonly string[],
  how: Pick<Wake, 'asked'> = {},
): Promise<void> {
  const wakes = [...new Set(endpointIds)].map((endpointId): Wake => ({ type: 'webhook', endpointId, ...how }))
  const direct = wakes.slice(0, DIRECT_MAX)
  // Beside the calls, one of which may hang.
  const others = send(ctx, wakes.slice(DIRECT_MAX))
  const calls = await Promise.allSettled(direct.map((wake) => wakeSender(ctx, wake)))
  await send(
    ctx,
    direct.filter((_, n) => calls[n]?.status === 'rejected'),
  )
  await others
}
