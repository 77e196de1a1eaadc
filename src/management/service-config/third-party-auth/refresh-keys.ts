import { and, eq, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { projects, thirdPartyAuths } from '../../../model/tables/index.ts'
import { rowsOf } from '../../../platform/db/client.ts'
import { mutate } from '../../kernel/mutate.ts'
import { clearProjectCaches } from '../../projects/projects/clear-project-caches.ts'
import type { KeySet } from './jwks.ts'
import { nextRefresh, nextTry } from './refresh-schedule.ts'
import { type Resolved, resolveKeys, type Source } from './resolve-keys.ts'

interface Lane {
  /** Of issuers whose last attempt failed, or of all others. */
  isOfFailing: boolean
  atOnce: number
  /** In one tick; each may take two requests and two names, and a tick has other duties. */
  refreshedMax: number
}

/** Those that fail, and let everybody wait before they do, take nothing from the others. */
const LANES: readonly Lane[] = [
  { isOfFailing: false, atOnce: 4, refreshedMax: 40 },
  { isOfFailing: true, atOnce: 2, refreshedMax: 10 },
]
/** After it none is begun: the rest is for the next tick. */
const BEGUN_MS_MAX = 30_000
/** Longer than what is begun can take. */
const LEASE_SECONDS = 120

type Leased = Source & {
  id: string
  ref: string
  issuer: string | null
  resolvedJwks: KeySet
  resolvedAtMs: number
  leasedUntil: string
}

/** Fetches the keys of issuers whose time has come, what is due for longest first. Those that fail keep the keys that they have. */
export async function refreshIssuers(ctx: SystemCtx): Promise<void> {
  await Promise.all(LANES.map((lane) => refreshLane(ctx, lane)))
}

async function refreshLane(ctx: SystemCtx, { isOfFailing, atOnce, refreshedMax }: Lane): Promise<void> {
  const endsAt = Date.now() + BEGUN_MS_MAX
  let left = refreshedMax
  const refreshNext = async () => {
    while (left > 0 && Date.now() < endsAt) {
      left -= 1
      const next = await lease(ctx, isOfFailing)
      if (!next) return
      await refresh(ctx, next)
    }
  }
  await Promise.all(Array.from({ length: atOnce }, refreshNext))
}

/** The time of the next attempt is the lease: what somebody else has taken is not due. */
async function lease({ db, databaseNow }: SystemCtx, isOfFailing: boolean): Promise<Leased | undefined> {
  const [leased] = await rowsOf<Leased>(
    db,
    sql`update third_party_auths t set refresh_at = ${databaseNow} + make_interval(secs => ${LEASE_SECONDS})
      from (
        select id from third_party_auths
        where refresh_at <= ${databaseNow} and (refresh_error is not null) = ${isOfFailing}
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
  const found = await resolveKeys(ctx, leased, { mayBeEmpty: true }).catch((error: unknown) => error)
  if (!isResolved(found)) return postpone(ctx, leased, found)
  const isSame =
    found.issuer === leased.issuer && JSON.stringify(sorted(found.jwks)) === JSON.stringify(sorted(leased.resolvedJwks))
  if (isSame) await confirm(ctx, leased)
  else await replace(ctx, leased, found)
}

const isResolved = (found: unknown): found is Resolved => typeof found === 'object' && found !== null && 'jwks' in found

/** jsonb has an order of its own for the members of an object. */
const sorted = ({ keys }: KeySet) => keys.map((key) => Object.entries(key).sort())

/** Still there, and not taken by anybody else since. */
const isHeld = ({ id, leasedUntil }: Leased) =>
  and(eq(thirdPartyAuths.id, id), sql`${thirdPartyAuths.refreshAt}::text = ${leasedUntil}`)

async function confirm({ db, now }: SystemCtx, leased: Leased): Promise<void> {
  const at = now()
  await db
    .update(thirdPartyAuths)
    .set({ resolvedAt: at, refreshAt: nextRefresh(at), refreshError: null })
    .where(isHeld(leased))
}

async function replace(ctx: SystemCtx, leased: Leased, { issuer, jwks }: Resolved): Promise<void> {
  const { id, ref } = leased
  const at = ctx.now()
  await mutate(ctx, async ({ tx, trace }) => {
    const [row] = await tx
      .update(thirdPartyAuths)
      .set({
        issuer,
        resolvedJwks: jwks,
        resolvedAt: at,
        updatedAt: at,
        refreshAt: nextRefresh(at),
        refreshError: null,
      })
      .where(isHeld(leased))
      .returning({ id: thirdPartyAuths.id })
    if (!row) return
    const [project] = await tx
      .select({ organizationId: projects.organizationId })
      .from(projects)
      .where(eq(projects.ref, ref))
    const keys = jwks.keys.map(({ kid }) => kid)
    const about = { ...project, projectRef: ref, detail: { integration: id, keys } }
    await trace({ ...about, action: 'third_party_auth.refresh' })
  })
  clearProjectCaches(ref)
}

async function postpone({ db, now, log }: SystemCtx, leased: Leased, error: unknown): Promise<void> {
  const message = error instanceof Error ? error.message : String(error)
  log.info('third_party_keys_kept', { project: leased.ref, integration: leased.id, reason: message })
  await db
    .update(thirdPartyAuths)
    .set({ refreshAt: nextTry(now(), new Date(leased.resolvedAtMs)), refreshError: message })
    .where(isHeld(leased))
}
