import { and, asc, count, eq, type SQL, sql } from 'drizzle-orm'
import type * as z from 'zod'
import { hashToken } from '../../../access/token.ts'
import type { Ctx } from '../../../ctx.ts'
import { webhookAssociatedData } from '../../../model/secrets/associated-data.ts'
import { type OldSecret, webhookDeliveries, webhookEndpoints } from '../../../model/tables/index.ts'
import { openSealed } from '../../../outbound/webhooks/attempt.ts'
import { clearLog, skipPending } from '../../../outbound/webhooks/delivery-store.ts'
import { keyOf } from '../../../outbound/webhooks/signature.ts'
import { endSenders } from '../../../outbound/webhooks/wake-senders.ts'
import { newTimedId } from '../../../platform/db/id.ts'
import { requireRow } from '../../../platform/db/require-row.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { checkDestination, refusalOf } from '../../../platform/net/destination.ts'
import { destinationRules } from '../../../platform/net/egress.ts'
import { seal } from '../../../platform/secrets/seal.ts'
import { invalidField } from '../../kernel/invalid-field.ts'
import { type Mutation, mutate } from '../../kernel/mutate.ts'
import { type Owner, ownedBy, subjectOf } from './endpoint-owner.ts'
import type { CreateEndpoint, EndpointListQuery, EndpointReply, UpdateEndpoint } from './schema.ts'

export type Endpoint = typeof webhookEndpoints.$inferSelect
type EndpointResource = z.input<typeof EndpointReply>['data']

/** The maximum number of endpoints per owner: each event is stored once per subscribed endpoint, in the transaction of its change. */
const ENDPOINTS_MAX = 100
const OLD_SECRETS_MAX = 10
/** The maximum number of deliveries deleted in one statement with their endpoint. */
const SHORT_LOG_MAX = 1_000
const HOUR_MS = 3_600_000

export async function listEndpoints(ctx: Ctx, owner: Owner, query: z.output<typeof EndpointListQuery>) {
  const { 'page[offset]': offset, 'page[limit]': limit } = query
  const [rows, [total]] = await ctx.db.batch([
    ctx.db
      .select()
      .from(webhookEndpoints)
      .where(ownedBy(owner))
      .orderBy(asc(webhookEndpoints.id))
      .offset(offset)
      .limit(limit),
    ctx.db.select({ endpoints: count() }).from(webhookEndpoints).where(ownedBy(owner)),
  ])
  const endpoints = total?.endpoints ?? 0
  const last = Math.max(0, Math.floor((endpoints - 1) / limit) * limit)
  const link = (at: number) => `${owner.path}/webhooks/endpoints?page[offset]=${at}&page[limit]=${limit}`
  return {
    data: await Promise.all(rows.map((row) => toResource(ctx, owner, row))),
    links: {
      first: link(0),
      last: link(last),
      prev: offset > 0 ? link(Math.max(0, offset - limit)) : null,
      next: offset + limit < endpoints ? link(offset + limit) : null,
    },
  }
}

export async function createEndpoint(ctx: Ctx, owner: Owner, { data }: z.output<typeof CreateEndpoint>) {
  const { url, enabled, description, event_types, custom_headers, signing_secret } = data.attributes
  await requireDestination(ctx, url)
  const id = newTimedId(ctx.now())
  const [sealedSecret, sealedHeaders] = await Promise.all([
    sealSecret(ctx, id, signing_secret),
    sealHeaders(ctx, id, custom_headers),
  ])
  const row = await mutate(ctx, async (mutation) => {
    await requireEndpointQuota(mutation, owner)
    const inserted = requireRow(
      await mutation.tx
        .insert(webhookEndpoints)
        .values({
          id,
          organizationId: owner.organization.id,
          projectRef: owner.projectRef,
          url,
          enabled,
          description: description ?? null,
          eventTypes: typesOf(event_types),
          sealedHeaders,
          sealedSecret,
          createdBy: ctx.actor.userId,
          createdAt: ctx.now(),
        })
        .returning(),
    )
    await mutation.trace({ ...subjectOf(owner), action: 'webhook.endpoint.create', detail: { endpoint: id } })
    return inserted
  })
  return { data: await toResource(ctx, owner, row) }
}

export async function getEndpoint(ctx: Ctx, owner: Owner, id: string) {
  return { data: await toResource(ctx, owner, await findEndpoint(ctx, owner, id)) }
}

export async function findEndpoint({ db }: Ctx, owner: Owner, id: string): Promise<Endpoint> {
  const [row] = await db
    .select()
    .from(webhookEndpoints)
    .where(and(ownedBy(owner), eq(webhookEndpoints.id, id)))
  if (!row) throw new ApiError('not_found.endpoint')
  return row
}

export async function updateEndpoint(ctx: Ctx, owner: Owner, id: string, { data }: z.output<typeof UpdateEndpoint>) {
  const { url, enabled, description, event_types, custom_headers, signing_secret } = data.attributes
  if (url !== undefined) await requireDestination(ctx, url)
  const sealedHeaders = custom_headers === undefined ? undefined : await sealHeaders(ctx, id, custom_headers)
  const row = await mutate(ctx, async ({ tx, wake, trace }) => {
    const [before] = await tx
      .select()
      .from(webhookEndpoints)
      .where(and(ownedBy(owner), eq(webhookEndpoints.id, id)))
      .for('no key update')
    if (!before) throw new ApiError('not_found.endpoint')
    if (url !== undefined && custom_headers === undefined) requireHeaders(owner, before, url)
    const changes = {
      ...(url !== undefined && { url, failingSince: null }),
      ...(enabled !== undefined && { enabled, failingSince: null }),
      ...(description !== undefined && { description }),
      ...(event_types && { eventTypes: typesOf(event_types) }),
      ...(sealedHeaders !== undefined && { sealedHeaders }),
      ...(signing_secret !== undefined && (await secretChanges(ctx, before, signing_secret))),
    }
    if (Object.keys(changes).length === 0) return before
    const [after] = await tx.update(webhookEndpoints).set(changes).where(eq(webhookEndpoints.id, id)).returning()
    if (!after) throw new Error('the endpoint was not updated')
    if (enabled === false) await skipPending(tx, ctx.databaseNow, id)
    // Pending deliveries that failed before may succeed now.
    else if (url !== undefined || enabled) wake(id)
    const fields = Object.keys(data.attributes)
    await trace({ ...subjectOf(owner), action: 'webhook.endpoint.update', detail: { endpoint: id, fields } })
    return after
  })
  return { data: await toResource(ctx, owner, row) }
}

/** Deletes an endpoint with its deliveries. The result of an attempt in progress is discarded. */
export async function deleteEndpoint(ctx: Ctx, owner: Owner, id: string) {
  const [row] = await deleteWhere(ctx, owner, id)
  if (!row) throw new ApiError('not_found.endpoint')
  return { data: await toResource(ctx, owner, row) }
}

export async function deleteEndpoints(ctx: Ctx, owner: Owner) {
  const rows = await deleteWhere(ctx, owner)
  return { data: await Promise.all(rows.map((row) => toResource(ctx, owner, row))) }
}

async function deleteWhere(ctx: Ctx, owner: Owner, id?: string): Promise<Endpoint[]> {
  const condition = and(ownedBy(owner), id === undefined ? undefined : eq(webhookEndpoints.id, id))
  const disabled = await clearLogs(ctx, owner, condition)
  const deleted = await mutate(ctx, async ({ tx, trace }) => {
    const rows = await tx.delete(webhookEndpoints).where(condition).returning()
    const endpoints = rows.map((row) => row.id).sort()
    if (rows.length > 0) await trace({ ...subjectOf(owner), action: 'webhook.endpoint.delete', detail: { endpoints } })
    return rows
  })
  const ids = deleted.map((row) => row.id)
  ctx.waitUntil(endSenders(ctx, ids))
  return deleted
    .map((row) => (disabled.has(row.id) ? { ...row, enabled: true } : row))
    .sort((a, b) => (a.id < b.id ? -1 : 1))
}

/**
 * Deletes long delivery logs before their endpoints, because deleting an endpoint blocks its events. The endpoints are
 * disabled first, so that they receive no events meanwhile. Returns the ids of the endpoints that it disabled.
 */
async function clearLogs(ctx: Ctx, owner: Owner, condition: SQL | undefined): Promise<Set<string>> {
  const [long] = await ctx.db
    .select({ id: webhookDeliveries.id })
    .from(webhookEndpoints)
    .innerJoin(webhookDeliveries, eq(webhookDeliveries.endpointId, webhookEndpoints.id))
    .where(condition)
    .offset(SHORT_LOG_MAX)
    .limit(1)
  if (!long) return new Set()
  const disabled = await mutate(ctx, async ({ tx, trace }) => {
    const rows = await tx
      .update(webhookEndpoints)
      .set({ enabled: false })
      .where(and(condition, webhookEndpoints.enabled))
      .returning({ id: webhookEndpoints.id })
    const ids = rows.map(({ id }) => id).sort()
    const detail = { endpoints: ids, reason: 'they are being deleted' }
    if (ids.length > 0) await trace({ ...subjectOf(owner), action: 'webhook.endpoint.disable', detail })
    return ids
  })
  const endpoints = await ctx.db.select({ id: webhookEndpoints.id }).from(webhookEndpoints).where(condition)
  for (const { id } of endpoints) await clearLog(ctx.db, ctx.databaseNow, id)
  return new Set(disabled)
}

async function requireDestination(ctx: Ctx, url: string): Promise<void> {
  const refusal = refusalOf(await checkDestination(url, destinationRules(ctx)))
  if (refusal !== undefined) throw invalidUrl(refusal)
}

/** Requires the headers again: otherwise a caller could send headers that they cannot read to their own server. */
function requireHeaders({ showsHeaders }: Owner, { url, sealedHeaders }: Endpoint, next: string): void {
  if (showsHeaders || sealedHeaders === null || new URL(next).origin === new URL(url).origin) return
  const message = 'must be given again when the origin of url changes, unless the caller may read secrets'
  throw invalidField('body.data.attributes.custom_headers', message, 'missing')
}

const invalidUrl = (message: string) => invalidField('body.data.attributes.url', message, 'invalid_destination')

/** Checks the number of endpoints under a lock, so that concurrent requests cannot exceed the limit. */
async function requireEndpointQuota({ tx }: Mutation, owner: Owner): Promise<void> {
  const { organization, projectRef } = owner
  await tx.execute(
    sql`select pg_advisory_xact_lock(hashtextextended(${`webhooks ${organization.id} ${projectRef}`}, 0))`,
  )
  if ((await tx.$count(webhookEndpoints, ownedBy(owner))) < ENDPOINTS_MAX) return
  throw new ApiError('bad_request.endpoint.too_many', { detail: `at most ${ENDPOINTS_MAX} are allowed` })
}

function withOldSecret({ config, now }: Ctx, { sealedSecret, oldSecrets }: Endpoint): OldSecret[] {
  const at = now().getTime()
  const until = at + config.WEBHOOK_ROTATION_HOURS * HOUR_MS
  return [{ sealed: sealedSecret, until }, ...oldSecrets].filter((old) => old.until > at).slice(0, OLD_SECRETS_MAX)
}

/**
 * Returns the changes for a new secret; none for the current one. An old secret that is set again is removed from the old ones,
 * so that each key signs once. Secrets that cannot be decrypted are dropped.
 */
async function secretChanges(ctx: Ctx, before: Endpoint, secret: string): Promise<Partial<Endpoint>> {
  const keyHashOf = async ({ sealed }: Pick<OldSecret, 'sealed'>) => {
    const plaintext = await openSealed(ctx, before.id, 'secret', sealed)
    return plaintext === undefined ? undefined : hashOfKey(plaintext)
  }
  const [next, current, old] = await Promise.all([
    hashOfKey(secret),
    keyHashOf({ sealed: before.sealedSecret }),
    Promise.all(before.oldSecrets.map(keyHashOf)),
  ])
  if (current === next) return {}
  const sealedSecret = await sealSecret(ctx, before.id, secret)
  const oldSecrets = before.oldSecrets.filter((_, n) => old[n] !== next)
  return {
    sealedSecret,
    oldSecrets: current === undefined ? oldSecrets : withOldSecret(ctx, { ...before, oldSecrets }),
  }
}

const hashOfKey = (secret: string) => hashToken(String.fromCharCode(...keyOf(secret)))

const sealSecret = ({ config }: Ctx, id: string, secret: string) =>
  seal(config.ENCRYPTION_KEY, secret, webhookAssociatedData(id, 'secret'))

const sealHeaders = async ({ config }: Ctx, id: string, headers: Record<string, string> | null | undefined) =>
  headers ? seal(config.ENCRYPTION_KEY, JSON.stringify(headers), webhookAssociatedData(id, 'headers')) : null

const typesOf = (types: { type: Endpoint['eventTypes'][number] }[]) =>
  Array.from(new Set(types.map(({ type }) => type)))

/** Leaves out headers that cannot be decrypted, so that the endpoint can still be read and repaired. */
async function toResource(ctx: Ctx, { showsHeaders }: Owner, row: Endpoint): Promise<EndpointResource> {
  const { id, sealedHeaders } = row
  const headers = !showsHeaders || sealedHeaders === null ? 'null' : await openSealed(ctx, id, 'headers', sealedHeaders)
  return {
    type: 'endpoint',
    id,
    attributes: {
      id,
      url: row.url,
      enabled: row.enabled,
      description: row.description,
      event_types: row.eventTypes.map((type) => ({ type })),
      ...(showsHeaders && headers !== undefined && { custom_headers: JSON.parse(headers) }),
      created_by: row.createdBy,
      created_at: row.createdAt.toISOString(),
    },
  }
}
