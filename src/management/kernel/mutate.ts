import { sql } from 'drizzle-orm'
import { appIdOf, callerOf } from '../../actor.ts'
import type { SystemCtx } from '../../ctx.ts'
import { auditLog, projects } from '../../model/tables/index.ts'
import { logLifecycle } from '../../outbound/events/lifecycle.ts'
import { type NewEvent, publish } from '../../outbound/events/publish.ts'
import { wakeSenders } from '../../outbound/webhooks/wake-senders.ts'
import { inTransaction, REQUEST_LOCK_MS, rowsOf, type Writer } from '../../platform/db/client.ts'
import { controlDatabase } from '../../platform/db/control-database.ts'
import { isConflict } from '../../platform/db/postgres-errors.ts'
import { ApiError } from '../../platform/http/error.ts'
import type { Message } from '../../platform/queue/message.ts'
import { send } from '../../platform/queue/send.ts'
import { withUserSession } from './user-sessions.ts'

/** An audit log entry: the action, and the organization or project it changed. */
interface Trace {
  /** `<noun>.<verb>`, such as `project.pause`. */
  action: string
  /** Stands for `organizationId` and `projectRef`. */
  project?: { organizationId: string; ref: string }
  organizationId?: string
  projectRef?: string
  /** Names of the changed fields, never secret values. */
  detail?: Record<string, unknown>
}

interface Author {
  actorUserId?: string | undefined
  actorAppId?: string | undefined
}

export interface Mutation {
  tx: Writer
  /** Writes the audit log entry. `author` defaults to the caller. */
  trace(trace: Trace, author?: Author): Promise<void>
  /** Publishes events to the subscribed webhook endpoints. `actor` defaults to the caller; a `userId` of undefined means nobody. */
  publish(events: NewEvent | readonly NewEvent[], actor?: { userId: string | undefined }): Promise<void>
  /** Wakes the endpoint's sender after the commit, for deliveries that a user requested. The sweeper sends what a lost call missed. */
  wake(endpointId: string): void
  /** Sends a message after the commit. The sweeper sends lost messages again. */
  enqueue(message: Message): void
}

/** Attempts at a transaction that Postgres aborts because of a conflict with another one. */
const TRIES = 3

/**
 * Changes the control database; the API has no other way to do so. Rows, audit entry, events and deliveries commit together, and
 * messages are sent after the commit.
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
  const lockTimeoutMs = ctx.actor.kind === 'system' ? undefined : REQUEST_LOCK_MS
  // `inTransaction` may run the work again, which then starts with empty lists.
  const transact = async (tx: Writer) => {
    const messages: Message[] = []
    const endpointIds: string[] = []
    const requestedIds: string[] = []
    const published: NewEvent[] = []
    const result = await work({
      tx,
      trace: (trace, author = authorOf(ctx)) => writeAuditEntry(ctx, tx, trace, author),
      publish: async (events, actor = { userId: authorOf(ctx).actorUserId }) => {
        endpointIds.push(...(await publish(tx, events, { actorUserId: actor.userId, now: ctx.databaseNow })))
        published.push(...[events].flat())
      },
      wake: (endpointId) => requestedIds.push(endpointId),
      enqueue: (message) => messages.push(message),
    })
    return { result, messages, endpointIds, requestedIds, published }
  }
  const committed = await withUserSession(callerOf(ctx.actor)?.userId, () =>
    inTransaction({ ...controlDatabase(config), lockTimeoutMs }, transact),
  )
  const { result, messages, endpointIds, requestedIds, published } = committed
  logLifecycle(ctx.log, published)
  if (messages.length > 0) ctx.waitUntil(send(ctx, messages))
  if (endpointIds.length > 0) ctx.waitUntil(wakeSenders(ctx, endpointIds))
  if (requestedIds.length > 0) ctx.waitUntil(wakeSenders(ctx, requestedIds, { asked: true }))
  return result
}

/**
 * Writes the audit entry. Fails if the project was transferred since the caller's role was checked: they may no longer have a
 * role in it. The key-share lock keeps the project in its organization until the commit; it conflicts only with the lock of a transfer.
 */
async function writeAuditEntry(ctx: SystemCtx, tx: Writer, trace: Trace, author: Author): Promise<void> {
  const { action, project, detail = {} } = trace
  const { organizationId = project?.organizationId ?? null, projectRef = project?.ref ?? null } = trace
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
