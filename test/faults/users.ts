import { sql } from 'drizzle-orm'
import type { Caller } from '../../src/actor.ts'
import type { Ctx } from '../../src/ctx.ts'
import { mutate } from '../../src/management/kernel/mutate.ts'
import { retryDelivery } from '../../src/management/observability/webhooks/deliveries.ts'
import type { Owner } from '../../src/management/observability/webhooks/endpoint-owner.ts'
import {
  createEndpoint,
  deleteEndpoint,
  updateEndpoint,
} from '../../src/management/observability/webhooks/endpoints.ts'
import { CreateEndpoint, UpdateEndpoint } from '../../src/management/observability/webhooks/schema.ts'
import type { NewEvent } from '../../src/outbound/events/publish.ts'
import { ApiError } from '../../src/platform/http/error.ts'
import { describeError } from '../../src/platform/http/log.ts'
import type { Database } from './database.ts'
import type { Installation } from './installation.ts'
import { type Behaviour, hostOf, type KnownEndpoint } from './receivers.ts'
import { caller } from './socket.ts'
import type { Instance, World } from './world.ts'

export interface Tenant {
  organization: { id: string; slug: string }
  projects: string[]
}

/** One attempt to publish; only the database knows its result. */
export interface Publication {
  /** The content of the event: the change and the number of the attempt. */
  label: string
  /** The change that the event reports; attempts with the same idempotency key share it. */
  change: string
  /** The endpoints that had to receive it, by the committed rows at the execution of its statement. */
  wanted: Set<string>
}

/** The time that users wait for an answer; a request that died gives none. */
const PATIENCE_MS = 30_000

interface SubscriptionRow {
  id: string
  organization_id: string
  project_ref: string | null
  enabled: boolean
  event_types: string[]
}

class RolledBack extends Error {}

/** Whether the error is a refusal, an injected fault, or a lock that another transaction of the simulation holds. */
function isExpected({ faultedAt }: Instance, error: unknown): boolean {
  if (error instanceof ApiError || error instanceof RolledBack || faultedAt.length > 0) return true
  return describeError(error).includes('lock timeout')
}

let users = 0

/**
 * A user for each request: isolates of the simulation share their memory, in which the sessions of a killed one would go on counting
 * for its user.
 */
const newUserId = () => `00000000-0000-4000-8000-${String(users++).padStart(12, '0')}`

interface Options {
  world: World
  database: Database
  installation: Installation
  endpoints: Map<string, KnownEndpoint>
}

export function createUsers({ world, database, installation, endpoints }: Options) {
  const publications = new Map<string, Publication>()
  const unanswered = new Set<Instance>()
  let requests = 0

  /** Runs one request in an isolate of its own. */
  async function request<T>(work: (ctx: Ctx) => Promise<T>, onExecuted?: (point: string) => Promise<void> | void) {
    const instance: Instance = installation.newInstance(`request ${requests++}`)
    const system = installation.contextOf(instance)
    const actor: Caller = {
      kind: 'user',
      token: '',
      tokenId: '00000000-0000-4000-8000-000000000001',
      userId: newUserId(),
      username: 'user',
      primaryEmail: 'user@example.com',
      isDisabled: false,
      scopes: [],
    }
    // A transaction on its own connection does not replace the placeholder of the clock.
    const now = () => sql`${new Date(world.now()).toISOString()}::timestamptz`
    const ctx: Ctx = {
      ...system,
      actor,
      get databaseNow() {
        return now()
      },
    }
    const who = { world, instance, url: database.url, ...(onExecuted && { onExecuted }) }
    const patience = world.timeout(PATIENCE_MS)
    unanswered.add(instance)
    instance.atDeath.add(() => unanswered.delete(instance))
    return Promise.race([
      caller
        .run(who, () => work(ctx))
        .catch((error) => {
          if (!isExpected(instance, error)) world.broken(`${instance.name} failed: ${describeError(error)}`)
          throw error
        })
        .finally(() => {
          unanswered.delete(instance)
          patience.clear()
        }),
      new Promise<never>((_, reject) => {
        patience.signal.addEventListener('abort', () => reject(new Error('no answer')), { once: true })
      }),
    ])
  }

  interface Publish {
    tenant: Tenant
    projectRef: string | null
    type: 'v1.project.secrets.leaked' | 'v1.organization.secrets.leaked'
    change: string
    rollBack?: boolean
    idempotencyKey?: string
  }

  /** Runs a mutation with an event, as the areas do: the audit entry represents the change of the request. */
  async function publish({
    tenant,
    projectRef,
    type,
    change,
    rollBack = false,
    idempotencyKey,
  }: Publish): Promise<void> {
    const label = `${change}~${publications.size}`
    const publication: Publication = { label, change, wanted: new Set() }
    publications.set(label, publication)
    const event = {
      type,
      organization: tenant.organization,
      projectRef,
      fields: { secrets: [{ name: label, url: null }] },
      ...(idempotencyKey && { idempotencyKey }),
    } as NewEvent
    await request(
      (ctx) =>
        mutate(ctx, async (mutation) => {
          await mutation.trace({
            action: 'simulated.change',
            organizationId: tenant.organization.id,
            detail: { change },
          })
          await mutation.publish(event)
          if (rollBack) throw new RolledBack()
        }),
      async (point) => {
        if (point === 'publish') publication.wanted = await subscribers(tenant, projectRef, type)
      },
    )
  }

  /**
   * Returns the subscribers by rules of its own and from the committed rows, so that it does not repeat a mistake of
   * the code under test.
   */
  async function subscribers({ organization }: Tenant, projectRef: string | null, type: string): Promise<Set<string>> {
    const rows = await database.query<SubscriptionRow>(
      'select id, organization_id, project_ref, enabled, event_types from webhook_endpoints',
    )
    const wanted = new Set<string>()
    for (const row of rows) {
      const reached = row.project_ref === null || row.project_ref === projectRef
      const subscribed = row.event_types.includes('*') || row.event_types.includes(type)
      if (row.enabled && row.organization_id === organization.id && reached && subscribed) wanted.add(row.id)
    }
    return wanted
  }

  const ownerOf = ({ organization }: Tenant, projectRef: string | null): Owner => ({
    organization,
    projectRef,
    showsHeaders: true,
    path: '',
  })

  interface NewEndpoint {
    label: string
    tenant: Tenant
    projectRef: string | null
    types: string[]
    enabled?: boolean
    behave: (nth: number) => Behaviour
  }
  const owners = new Map<string, Owner>()

  async function create({ label, tenant, projectRef, types, enabled = true, behave }: NewEndpoint): Promise<void> {
    const secret = newSecret(label, 0)
    const owner = ownerOf(tenant, projectRef)
    const attributes = {
      url: `https://${hostOf(label)}/hook`,
      enabled,
      event_types: types.map((type) => ({ type })),
      signing_secret: secret,
    }
    owners.set(label, owner)
    // Recorded before it is committed: the first delivery may be faster than the answer of the commit.
    const known = { id: '', label, secrets: [secret], states: [], behave, posts: 0 } as KnownEndpoint
    endpoints.set(label, known)
    const body = CreateEndpoint.parse({ data: { type: 'endpoint', attributes } })
    await request(
      (ctx) => createEndpoint(ctx, owner, body),
      async (point) => {
        if (point !== 'commit') return
        const { rows } = await database.client.query('select id from webhook_endpoints where url = $1', [
          attributes.url,
        ])
        known.id = rows[0]?.id ?? ''
        known.states.push({ at: world.now(), enabled, deleted: false, secret: 0 })
      },
    )
  }

  async function update(label: string, change: { enabled?: boolean; rotate?: boolean; path?: string }): Promise<void> {
    const known = endpointOf(label)
    const last = known.states.at(-1)
    if (!last || last.deleted) return
    const secret = newSecret(label, known.secrets.length)
    if (change.rotate) known.secrets.push(secret)
    const number = change.rotate ? known.secrets.length - 1 : undefined
    const attributes = {
      ...(change.enabled !== undefined && { enabled: change.enabled }),
      ...(change.rotate && { signing_secret: secret }),
      ...(change.path !== undefined && { url: `https://${hostOf(label)}/${change.path}` }),
    }
    const body = UpdateEndpoint.parse({ data: { type: 'endpoint', attributes } })
    await request(
      (ctx) => updateEndpoint(ctx, ownerFor(label), known.id, body),
      (point) => {
        const before = known.states.at(-1)
        if (point !== 'commit' || !before) return
        const enabled = change.enabled ?? before.enabled
        known.states.push({ ...before, at: world.now(), enabled, secret: number ?? before.secret })
      },
    )
  }

  async function remove(label: string): Promise<void> {
    const known = endpointOf(label)
    await request(
      (ctx) => deleteEndpoint(ctx, ownerFor(label), known.id),
      (point) => {
        const before = known.states.at(-1)
        if (point === 'commit' && before)
          known.states.push({ ...before, at: world.now(), enabled: false, deleted: true })
      },
    )
  }

  const retried = new Set<string>()
  async function retry(label: string, deliveryId: string, messageId: string): Promise<void> {
    retried.add(messageId)
    await request((ctx) => retryDelivery(ctx, ownerFor(label), deliveryId))
  }

  const ownerFor = (label: string): Owner => {
    const owner = owners.get(label)
    if (!owner) throw new Error(`no endpoint ${label}`)
    return owner
  }
  const endpointOf = (label: string): KnownEndpoint => {
    const known = endpoints.get(label)
    if (!known) throw new Error(`no endpoint ${label}`)
    return known
  }

  /** Returns requests that neither died nor ended. */
  const hanging = () => [...unanswered].map(({ name }) => name)

  /** Clears the records that were judged already. */
  function forget(): void {
    publications.clear()
    retried.clear()
  }

  return { publish, create, update, remove, retry, publications, retried, hanging, forget }
}
export type Users = ReturnType<typeof createUsers>

const newSecret = (label: string, nth: number) =>
  `whsec_${Buffer.from(`${label} secret ${nth}`.padEnd(24, '.')).toString('base64')}`
