import { and, eq, inArray, sql } from 'drizzle-orm'
import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { loginRole, type Power } from '../../../engine/logins.ts'
import { newPassword } from '../../../model/secrets/project.ts'
import { type JitRole, jitGrants, temporaryLogins } from '../../../model/tables/index.ts'
import { rowsOf, type Writer } from '../../../platform/db/client.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { mutate } from '../../kernel/mutate.ts'
import { selectSettings, settingsFrom } from '../../projects/settings/read-settings.ts'
import { requireActive } from '../database/service.ts'
import type { AuthorizeJit } from './schema.ts'
import { requireScope } from './service.ts'
import { makeLogin } from './temporary-logins.ts'

/** Then the caller asks again, and what he holds is looked at again. */
const LOGIN_MS_MAX = 3_600_000

/**
 * Opens the login that the caller was granted. Its password is the access token that he called with, or one of its own where
 * others would get to know the token; it ends with the token. Postgres checks the networks again when he comes.
 */
export async function authorizeJit(
  ctx: Ctx,
  project: ProjectAccess,
  { role: name, rhost }: z.output<typeof AuthorizeJit>,
) {
  requireActive(project)
  const { ref, organizationId } = project
  const { userId, tokenId, token } = ctx.actor
  const { logins } = ctx.engine
  const power = logins.powerOf(ref, name)
  if (!power) throw refused(`${name} is no role of this project that can be given`)
  // A token must not open more by way of the database than it may do here.
  if (power !== 'reader') requireScope(ctx, 'database:write')
  const role = loginRole('jit', await lettersFor(`${ref} ${userId} ${power} ${tokenId}`))
  const granted = await mutate(ctx, async ({ tx, trace }) => {
    const setting = settingsFrom('jit', await selectSettings(tx, ref, 'jit').for('share'))
    if (setting.value.state !== 'enabled') throw refused('it is disabled for this project')
    const entry = await grantFor(ctx, tx, project, power)
    const networks = networksOf(entry)
    if (networks && !(await lies(tx, rhost, networks))) throw refused(`${rhost} is in none of the allowed networks`)
    const expiresAt = endOf(ctx, entry)
    const bound = { expiresAt, createdAt: ctx.now() }
    await tx
      .insert(temporaryLogins)
      .values({ role, projectRef: ref, userId, tokenId, grantedRole: power, readOnly: power === 'reader', ...bound })
      .onConflictDoUpdate({ target: temporaryLogins.role, set: bound, setWhere: eq(temporaryLogins.tokenId, tokenId) })
    await trace({ action: 'project.jit.login', organizationId, projectRef: ref, detail: { role, power, rhost } })
    return { entry, networks, expiresAt }
  })
  const { entry, networks, expiresAt } = granted
  const ownPassword = ctx.engine.capabilities.exposesPasswords ? newPassword() : undefined
  await makeLogin(ctx, { ref, role, power, password: ownPassword ?? token, expiresAt, networks })
  const { host, port, user, database } = ctx.engine.connection(project, role)
  const login = {
    ...{ user, ...(ownPassword && { password: ownPassword }) },
    ...{ host, port, database, expires_at: Math.floor(expiresAt.getTime() / 1000) },
  }
  return { user_id: userId, user_role: entry, login }
}

const refused = (detail: string) => new ApiError('forbidden.permission_denied', { detail })

/** Locked, so that who takes it away finds the login that is opened by it. */
async function grantFor(ctx: Ctx, tx: Writer, { ref, parentRef }: ProjectAccess, power: Power): Promise<JitRole> {
  const grants = await tx
    .select({ ref: jitGrants.projectRef, roles: jitGrants.roles })
    .from(jitGrants)
    .where(and(inArray(jitGrants.projectRef, [ref, parentRef ?? ref]), eq(jitGrants.userId, ctx.actor.userId)))
    .for('share')
  const held = grants.flatMap((grant) =>
    grant.roles.filter(
      (entry) => ctx.engine.logins.powerOf(grant.ref, entry.role) === power && holds(grant.ref, entry),
    ),
  )
  const [entry] = held
  if (!entry) throw refused('the caller was not given this role')
  const live = held.find(({ expires_at: at }) => at === undefined || at * 1000 > ctx.now().getTime())
  if (!live) throw refused('the time for which the caller was given this role is over')
  return live

  /** A branch has roles of its own, and those of its parent that are for branches. */
  function holds(grantRef: string, { branches_only: branchesOnly = false }: JitRole): boolean {
    return grantRef === ref ? !branchesOnly || parentRef !== null : branchesOnly
  }
}

function networksOf({ allowed_networks: networks }: JitRole): string[] | undefined {
  if (!networks) return undefined
  return [...(networks.allowed_cidrs ?? []), ...(networks.allowed_cidrs_v6 ?? [])].map(({ cidr }) => cidr)
}

async function lies(tx: Writer, address: string, networks: readonly string[]): Promise<boolean> {
  const [row] = await rowsOf<{ inside: boolean }>(
    tx,
    sql`select exists (select from unnest(${sql.param(networks)}::text[]) n where ${address}::inet <<= n::inet) as inside`,
  )
  return row?.inside === true
}

function endOf({ now, actor }: Ctx, { expires_at: seconds }: JitRole): Date {
  const ends = [now().getTime() + LOGIN_MS_MAX, actor.expiresAt, seconds === undefined ? undefined : seconds * 1000]
  return new Date(Math.min(...ends.filter((end) => end !== undefined)))
}

/** The same for the same, so that a login that is asked for again is the one that was there. */
async function lettersFor(text: string): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text)))
  return Array.from(digest.subarray(0, 8), (byte) => String.fromCharCode(97 + (byte % 26))).join('')
}
