import type { SystemCtx } from '../env.ts'
import type { Message } from '../queue/message.ts'

export type Wake = Extract<Message, { type: 'webhook' }>

export const wakeSender = ({ bindings: { WEBHOOK_SENDERS: senders } }: SystemCtx, { endpointId, swept }: Wake) =>
  senders.get(senders.idFromName(endpointId)).wake(endpointId, { swept })
