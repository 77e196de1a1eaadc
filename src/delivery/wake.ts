import type { SystemCtx } from '../env.ts'
import type { Message } from '../queue/message.ts'
import { send } from '../queue/send.ts'

export type Wake = Extract<Message, { type: 'webhook' }>

export const wakeSender = ({ bindings: { WEBHOOK_SENDERS: senders } }: SystemCtx, { endpointId, swept }: Wake) =>
  senders.get(senders.idFromName(endpointId)).wake(endpointId, { swept })

/** Of one commit; one more call would make its request dearer than a message makes the queue. */
const DIRECT_MAX = 8

/** Wakes the senders of endpoints that have new deliveries: the first few at once, the others and those that could not be reached through the queue. */
export async function wakeSenders(ctx: SystemCtx, endpointIds: readonly string[]): Promise<void> {
  const wakes = [...new Set(endpointIds)].map((endpointId): Wake => ({ type: 'webhook', endpointId }))
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
