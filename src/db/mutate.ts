import type { Ctx, SystemCtx } from '../env.ts'
import type { Message } from '../queue/message.ts'
import { inTransaction, type Writer } from './client.ts'
import { auditLog } from './schema/index.ts'

/** What a mutation leaves behind beside its rows: who did what to which organization or project. */
interface Trace {
  /** `<noun>.<verb>`, such as `project.pause`. */
  action: string
  organizationId?: string
  projectRef?: string
  /** Names of what changed, never secret values. */
  detail?: Record<string, unknown>
}

export interface Mutation {
  tx: Writer
  trace(trace: Trace): Promise<void>
  /** Sent once the transaction has committed; a message that is lost is sent again by the sweeper. */
  enqueue(message: Message): void
}

/**
 * The one way for the API to change the control database: rows, audit entry (and whatever must join them) commit together,
 * messages follow the commit.
 */
export async function mutate<T>(ctx: SystemCtx | Ctx, work: (mutation: Mutation) => Promise<T>): Promise<T> {
  const { config, log } = ctx
  const messages: Message[] = []
  const result = await inTransaction({ url: config.DATABASE_URL, proxy: config.NEON_PROXY }, (tx) =>
    work({
      tx,
      trace: async (trace) => {
        await tx.insert(auditLog).values({ ...trace, ...actorOf(ctx), requestId: ctx.requestId, createdAt: ctx.now() })
      },
      enqueue: (message) => messages.push(message),
    }),
  )
  if (messages.length > 0) {
    const sent = ctx.bindings.PROJECT_TASKS.sendBatch(messages.map((body) => ({ body })))
    ctx.waitUntil(sent.catch((error) => log.error('enqueue_failed', { error: String(error) })))
  }
  return result
}

const actorOf = (ctx: SystemCtx | Ctx) =>
  'principal' in ctx && ctx.principal ? { actorUserId: ctx.principal.userId, actorAppId: ctx.principal.appId } : {}
