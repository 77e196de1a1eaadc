import { sql } from 'drizzle-orm'
import { appIdOf, callerOf } from '../../actor.ts'
import type { SystemCtx } from '../../ctx.ts'
import { auditLog, projects } from '../../model/tables/index.ts'
import { logLifecycle } from '../../outbound/events/lifecycle.ts'
import { type NewEvent, publish } from '../../outbound/events/publish.ts'
import { wakeSenders } from '../../outbound/webhooks/wake-senders.ts'
import { inTransaction, rowsOf, type Writer } from '../../platform/db/client.ts'
import { controlDatabase } from '../../platform/db/control-database.ts'
import { isConflict } from '../../platform/db/postgres-errors.ts'
import { ApiError } from '../../platform/http/error.ts'
import type { Message } from '../../platform/queue/message.ts'
import { send } from '../../platform/queue/send.ts'

/** What a mutation leaves behind beside its rows: who did what to which organization or project. */
interface Trace {
  /** `<noun>.<verb>`, such as `project.pause`. */
  action: string
  organizationId?: string
  projectRef?: string
  /** Names of what changed, never secret values. */
  detail?: Record<string, unknown>
}

interface Author {
  actorUserId?: string | undefined
  actorAppId?: string | undefined
}

export interface Mutation {
  tx: Writer
  /** `author` where it is not the caller. */
  trace(trace: Trace, author?: Author): Promise<void>
  /** Tells the webhook endpoints that subscribe to it. `actorUserId` where it is not the caller: undefined for nobody. */
  publish(events: NewEvent | readonly NewEvent[], actor?: { userId: string | undefined }): Promise<void>
  /**
   * Once the transaction has committed, the endpoint's sender goes to work on what a user asked for; a sweeper comes to what it was
   * not told.
   */
  wake(endpointId: string): void
  /** Sent once the transaction has committed; a message that is lost is sent again by the sweeper. */
  enqueue(message: Message): void
}

/** A transaction that Postgres ended for the sake of another one did nothing, and is simply done again. */
const TRIES = 3

/**
 * The one way for the API to change the control database: rows, audit entry, events and their deliveries commit together,
 * messages follow the commit.
 */
export async function mutate<T>(ctx: SystemCtx, work: (mutation: Mutation) => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await commit(ctx, work)
    } catch (error) {
      if (tries === TRIES || !isConflict(error)) throw error
    }
  }
}

async function commit<T>(ctx: SystemCtx, work: (mutation: Mutation) => Promise<T>): Promise<T> {
  const { config } = ctx
  const messages: Message[] = []
  const woken: string[] = []
  const asked: string[] = []
  let published: NewEvent[] = []
  const result = await inTransaction(controlDatabase(config), (tx) => {
    // A transaction that was lost is begun anew.
    published = []
    return work({
      tx,
      trace: (trace, author = authorOf(ctx)) => record(ctx, tx, trace, author),
      publish: async (events, actor = { userId: authorOf(ctx).actorUserId }) => {
        woken.push(...(await publish(tx, events, { actorUserId: actor.userId, now: ctx.databaseNow })))
        published.push(...[events].flat())
      },
      wake: (endpointId) => asked.push(endpointId),
      enqueue: (message) => messages.push(message),
    })
  })
  logLifecycle(ctx.log, published)
  if (messages.length > 0) ctx.waitUntil(send(ctx, messages))
  if (woken.length > 0) ctx.waitUntil(wakeSenders(ctx, woken))
  if (asked.length > 0) ctx.waitUntil(wakeSenders(ctx, asked, { asked: true }))
  return result
}

/**
 * A project may have been transferred since the caller's role in it was looked at: then he has none any more, and nothing of the
 * mutation holds. Else it stays where it is until this has committed: of all locks, that of a transfer alone waits for this one, and
 * this one for that.
 */
async function record(ctx: SystemCtx, tx: Writer, trace: Trace, author: Author): Promise<void> {
  const { action, organizationId = null, projectRef = null, detail = {} } = trace
  const { actorUserId = null, actorAppId = null } = author
  const recorded = await rowsOf(
    tx,
    sql`with project as (select organization_id from ${projects} where ref = ${projectRef} for key share)
      insert into ${auditLog} (action, actor_user_id, actor_app_id, organization_id, project_ref, detail, request_id, created_at)
      select ${action}, ${actorUserId}::uuid, ${actorAppId}::uuid, ${organizationId}::uuid, ${projectRef},
        ${JSON.stringify(detail)}::jsonb, ${ctx.requestId}, ${ctx.now().toISOString()}::timestamptz
      where not exists (select from project where organization_id <> ${organizationId}::uuid)
      returning id`,
  )
  if (recorded.length === 0) throw new ApiError('not_found.project')
}

const authorOf = ({ actor }: SystemCtx): Author => ({
  actorUserId: callerOf(actor)?.userId,
  actorAppId: appIdOf(actor),
})
