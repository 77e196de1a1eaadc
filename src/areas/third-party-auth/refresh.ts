import { and, eq, sql } from 'drizzle-orm'
import { rowsOf } from '../../db/client.ts'
import { mutate } from '../../db/mutate.ts'
import { projects, thirdPartyAuths } from '../../db/schema/index.ts'
import type { SystemCtx } from '../../env.ts'
import { forgetTrust } from '../projects/forget-trust.ts'
import type { KeySet } from './jwks.ts'
import { type Resolved, resolveKeys, type Source } from './resolve.ts'
import { nextRefresh, nextTry } from './schedule.ts'

/** In one tick; each may take two requests and two names, and a tick has other duties. */
const REFRESHED_MAX = 40
const AT_ONCE = 6
/** After it none is begun: the rest is for the next tick, once its lease has ended. */
const BEGUN_MS_MAX = 30_000
/** Longer than what is begun can take. */
const LEASE_SECONDS = 120

type Leased = Source & { id: string; ref: string; issuer: string | null; resolvedJwks: KeySet; leasedUntil: string }

/** Fetches the keys of issuers whose time has come. Those that fail keep the keys that they have. */
export async function refreshIssuers(ctx: SystemCtx): Promise<void> {
  const due = await lease(ctx)
  const endsAt = Date.now() + BEGUN_MS_MAX
  const refreshNext = async () => {
    for (let next = due.pop(); next && Date.now() < endsAt; next = due.pop()) await refresh(ctx, next)
  }
  await Promise.all(Array.from({ length: AT_ONCE }, refreshNext))
}

/** The time of the next attempt is the lease: what another tick has taken is not due. */
const lease = ({ db, databaseNow }: SystemCtx): Promise<Leased[]> =>
  rowsOf<Leased>(
    db,
    sql`update third_party_auths t set refresh_at = ${databaseNow} + make_interval(secs => ${LEASE_SECONDS})
      from (
        select id from third_party_auths where refresh_at <= ${databaseNow}
        order by refresh_at limit ${REFRESHED_MAX} for no key update skip locked
      ) due
      where t.id = due.id
      returning t.id, t.project_ref as ref, t.issuer, t.oidc_issuer_url as "oidcIssuerUrl", t.jwks_url as "jwksUrl",
        t.resolved_jwks as "resolvedJwks", t.refresh_at::text as "leasedUntil"`,
  )

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
  forgetTrust(ref)
}

async function postpone({ db, now, log }: SystemCtx, leased: Leased, error: unknown): Promise<void> {
  const message = error instanceof Error ? error.message : String(error)
  log.info('third_party_keys_kept', { project: leased.ref, integration: leased.id, reason: message })
  await db
    .update(thirdPartyAuths)
    .set({ refreshAt: nextTry(now()), refreshError: message })
    .where(isHeld(leased))
}
