import { and, eq, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { projects, thirdPartyAuths } from '../../../model/tables/index.ts'
import { rowsOf } from '../../../platform/db/client.ts'
import { clearProjectCaches } from '../../kernel/clear-project-caches.ts'
import { mutate } from '../../kernel/mutate.ts'
import type { KeySet } from './jwks.ts'
import { nextRefresh, nextRetry } from './refresh-schedule.ts'
import { type Resolved, resolveKeys, type Source } from './resolve-keys.ts'

interface RefreshGroup {
  /** Whether the group has the issuers whose last attempt failed, or all others. */
  isFailing: boolean
  concurrency: number
  /** The maximum number of refreshes per tick. Each may take two requests and two DNS lookups, and a tick has other work. */
  refreshedMax: number
}

/** Failing issuers, which are often slow, have their own limits so that they do not delay the others. */
const GROUPS: readonly RefreshGroup[] = [
  { isFailing: false, concurrency: 4, refreshedMax: 40 },
  { isFailing: true, concurrency: 2, refreshedMax: 10 },
]
/** No refresh is started after this time; the rest waits for the next tick. */
const START_MS_MAX = 30_000
/** Duration of a lease, which is longer than a refresh can take. */
const LEASE_SECONDS = 120

type Leased = Source & {
  id: string
  ref: string
  issuer: string | null
  resolvedJwks: KeySet
  resolvedAtMs: number
  leasedUntil: string
}

/** Fetches the keys of due issuers, longest overdue first. An issuer that fails keeps its stored keys. */
export async function refreshIssuers(ctx: SystemCtx): Promise<void> {
  await Promise.all(GROUPS.map((group) => refreshGroup(ctx, group)))
}

async function refreshGroup(ctx: SystemCtx, { isFailing, concurrency, refreshedMax }: RefreshGroup): Promise<void> {
  const endsAt = Date.now() + START_MS_MAX
  let remaining = refreshedMax
  const refreshNext = async () => {
    while (remaining > 0 && Date.now() < endsAt) {
      remaining -= 1
      const next = await lease(ctx, isFailing)
      if (!next) return
      await refresh(ctx, next)
    }
  }
  await Promise.all(Array.from({ length: concurrency }, refreshNext))
}

/** Leases the next due issuer: the time of its next attempt is moved forward, so that it is no longer due. */
async function lease({ db, databaseNow }: SystemCtx, isFailing: boolean): Promise<Leased | undefined> {
  const [leased] = await rowsOf<Leased>(
    db,
    sql`update third_party_auths t set refresh_at = ${databaseNow} + make_interval(secs => ${LEASE_SECONDS})
      from (
        select id from third_party_auths
        where refresh_at <= ${databaseNow} and (refresh_error is not null) = ${isFailing}
        order by refresh_at limit 1 for no key update skip locked
      ) due
      where t.id = due.id
      returning t.id, t.project_ref as ref, t.issuer, t.oidc_issuer_url as "oidcIssuerUrl", t.jwks_url as "jwksUrl",
        t.resolved_jwks as "resolvedJwks", (extract(epoch from t.resolved_at) * 1000)::float8 as "resolvedAtMs",
        t.refresh_at::text as "leasedUntil"`,
  )
  return leased
}

async function refresh(ctx: SystemCtx, leased: Leased): Promise<void> {
  const found = await resolveKeys(ctx, leased, { allowEmpty: true }).catch((error: unknown) => error)
  if (isResolved(found)) await store(ctx, leased, found)
  else await postpone(ctx, leased, found)
}

const isResolved = (found: unknown): found is Resolved => typeof found === 'object' && found !== null && 'jwks' in found

/** Sorts the members of keys, because jsonb does not keep their order. */
const sortMembers = ({ keys }: KeySet) => keys.map((key) => Object.entries(key).sort())

/** Selects the row as long as the lease is held. */
const isLeasedBy = ({ id, leasedUntil }: Leased) =>
  and(eq(thirdPartyAuths.id, id), sql`${thirdPartyAuths.refreshAt}::text = ${leasedUntil}`)

/** Stores the keys. Only a change of them has an entry in the audit log and clears caches. */
async function store(ctx: SystemCtx, leased: Leased, { issuer, jwks }: Resolved): Promise<void> {
  const { id, ref } = leased
  const isSame =
    issuer === leased.issuer && JSON.stringify(sortMembers(jwks)) === JSON.stringify(sortMembers(leased.resolvedJwks))
  const at = ctx.now()
  await mutate(ctx, async ({ tx, trace }) => {
    const times = { resolvedAt: at, refreshAt: nextRefresh(at), ...(!isSame && { updatedAt: at }) }
    const [row] = await tx
      .update(thirdPartyAuths)
      .set({ issuer, resolvedJwks: jwks, ...times, refreshError: null })
      .where(isLeasedBy(leased))
      .returning({ id: thirdPartyAuths.id })
    if (!row || isSame) return
    const [project] = await tx
      .select({ organizationId: projects.organizationId })
      .from(projects)
      .where(eq(projects.ref, ref))
    const keys = jwks.keys.map(({ kid }) => kid)
    const entry = { ...project, projectRef: ref, detail: { integration: id, keys } }
    await trace({ ...entry, action: 'third_party_auth.refresh' })
  })
  if (!isSame) clearProjectCaches(ref)
}

async function postpone({ db, now, log }: SystemCtx, leased: Leased, error: unknown): Promise<void> {
  const message = error instanceof Error ? error.message : String(error)
  log.info('third_party_keys_kept', { project: leased.ref, integration: leased.id, reason: message })
  await db
    .update(thirdPartyAuths)
    .set({ refreshAt: nextRetry(now(), new Date(leased.resolvedAtMs)), refreshError: message })
    .where(isLeasedBy(leased))
}
