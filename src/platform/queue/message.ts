import * as z from 'zod'

/** Messages carry only ids and are hints: the database holds the work, and a sweeper sends lost messages again. */
export const Message = z.discriminatedUnion('type', [
  z.object({ type: z.literal('project-task'), id: z.uuid() }),
  z.object({ type: z.literal('worker-task'), id: z.uuid() }),
  z.object({ type: z.literal('private-link'), id: z.uuid() }),
  z.object({ type: z.literal('git-branch'), id: z.uuid() }),
  z.object({
    type: z.literal('webhook'),
    endpointId: z.uuid(),
    swept: z.boolean().optional(),
    asked: z.boolean().optional(),
  }),
  z.object({ type: z.literal('heartbeat'), at: z.number() }),
])
export type Message = z.output<typeof Message>
