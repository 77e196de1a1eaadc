import { and, eq, gt, ne, sql } from 'drizzle-orm'
import type * as z from 'zod'
import { type ProjectAccess, requireTokenScope } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { loginRole, type Power } from '../../../engine/logins.ts'
import { newPassword } from '../../../model/secrets/project.ts'
import { type JitRole, temporaryLogins } from '../../../model/tables/index.ts'
import { rowsOf, type Writer } from '../../../platform/db/client.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { mutate } from '../../kernel/mutate.ts'
import { checkStatus } from '../../projects/projects/status.ts'
import { parseSettingsRow, selectSettings } from '../../projects/settings/read-settings.ts'
import type { AuthorizeJit } from './schema.ts'
import { applicableGrants, selectGrants } from './service.ts'
import { makeLogin } from './temporary-logins.ts'

/** The maximum lifetime of a login. After it, the caller must authorize again, and the grants are checked again. */
const LOGIN_MS_MAX = 3_600_000
/** Limit of open logins of a user in a project. Each access token makes logins of its own, and an application gets any number of tokens. */
const LOGINS_MAX = 50

/**
 * Opens a login for a role that the caller was granted. Its password is the caller's access token, or a new password if the
 * driver would disclose the token. The login ends with the token. Postgres checks the networks again on connection.
 */
export async function authorizeJit(
  ctx: Ctx,
  project: ProjectAccess,
  { role: name, rhost }: z.output<typeof AuthorizeJit>,
) {
  checkStatus(project.status)
  const { ref } = project
  const { userId, tokenId, token } = ctx.actor
  const { logins } = ctx.engine
  const power = logins.powerOf(ref, name)
  if (!power) throw permissionDenied(`${name} is not a role of this project that can be granted`)
  // A token must not gain more rights through the database than it has in this API.
  if (power !== 'reader') requireTokenScope(ctx.actor, 'database:write')
  const role = loginRole('jit', await hashToLetters(`${ref} ${userId} ${power} ${tokenId}`))
  const granted = await mutate(ctx, async ({ tx, trace }) => {
    const setting = parseSettingsRow('jit', await selectSettings(tx, ref, 'jit').for('share'))
    if (setting.value.state !== 'enabled') throw permissionDenied('just-in-time access is disabled for this project')
    const entry = await grantFor(ctx, tx, project, power)
    const networks = networksOf(entry)
    if (networks && !(await isInNetworks(tx, rhost, networks)))
      throw permissionDenied(`rhost ${rhost} is not in an allowed network`)
    await requireBelowLimit(ctx, tx, ref, role)
    const expiresAt = endOf(ctx, entry)
    const period = { expiresAt, createdAt: ctx.now() }
    await tx
      .insert(temporaryLogins)
      .values({ role, projectRef: ref, userId, tokenId, grantedRole: power, readOnly: power === 'reader', ...period })
      .onConflictDoUpdate({ target: temporaryLogins.role, set: period, setWhere: eq(temporaryLogins.tokenId, tokenId) })
    await trace({ project, action: 'project.jit.login', detail: { role, power, rhost } })
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

const permissionDenied = (detail: string) => new ApiError('forbidden.permission_denied', { detail })

/** Requires that the caller has fewer open logins in the project than the limit, without the login that is renewed. */
async function requireBelowLimit({ actor: { userId }, now }: Ctx, tx: Writer, ref: string, renewed: string) {
  const { projectRef, role, expiresAt } = temporaryLogins
  const isCallers = and(eq(projectRef, ref), eq(temporaryLogins.userId, userId))
  const open = await tx.$count(temporaryLogins, and(isCallers, ne(role, renewed), gt(expiresAt, now())))
  if (open < LOGINS_MAX) return
  throw new ApiError('conflict.login_roles', {
    detail: `at most ${LOGINS_MAX} of a user can be open at once in a project; wait until they expire`,
  })
}

/**
 * Finds the grant of a role, and locks it so that a concurrent revocation finds the login that the grant opens, and that concurrent
 * logins are counted.
 */
async function grantFor(ctx: Ctx, tx: Writer, project: ProjectAccess, power: Power): Promise<JitRole> {
  const grants = await selectGrants(tx, project, ctx.actor.userId).for('no key update')
  const matching = applicableGrants(project, grants)
    .filter(({ ref, entry }) => ctx.engine.logins.powerOf(ref, entry.role) === power)
    .map(({ entry }) => entry)
  const [entry] = matching
  if (!entry) throw permissionDenied('this role is not granted to the caller')
  const valid = matching.find(({ expires_at: at }) => at === undefined || at * 1000 > ctx.now().getTime())
  if (!valid) throw permissionDenied("the caller's grant of this role has expired")
  return valid
}

function networksOf({ allowed_networks: networks }: JitRole): string[] | undefined {
  if (!networks) return undefined
  return [...(networks.allowed_cidrs ?? []), ...(networks.allowed_cidrs_v6 ?? [])].map(({ cidr }) => cidr)
}

async function isInNetworks(tx: Writer, address: string, networks: readonly string[]): Promise<boolean> {
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

/** Derives letters from a text, so that a repeated request reuses the existing login. */
async function hashToLetters(text: string): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text)))
  return Array.from(digest.subarray(0, 8), (byte) => String.fromCharCode(97 + (byte % 26))).join('')
}
