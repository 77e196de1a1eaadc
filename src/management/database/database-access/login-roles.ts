import { and, eq, gt, inArray, isNull, notInArray, type SQL } from 'drizzle-orm'
import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { loginRole } from '../../../engine/logins.ts'
import { newPassword } from '../../../model/secrets/project.ts'
import { accessTokens, temporaryLogins } from '../../../model/tables/index.ts'
import type { Writer } from '../../../platform/db/client.ts'
import { randomLetters } from '../../../platform/http/common-values.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { changeProject } from '../../kernel/change-project.ts'
import { mutate } from '../../kernel/mutate.ts'
import { checkStatus } from '../../projects/projects/status.ts'
import type { CreateLoginRole } from './schema.ts'
import { endLogins, expireLogins, loginsInUse, makeLogin } from './temporary-logins.ts'

const TTL_SECONDS = 1_800
const ROLES_MAX = 50

/**
 * Creates a login role for the CLI. Its password is returned once and not stored. The CLI creates one for each command and deletes
 * none, so at the limit, the new login replaces the oldest unused one of the caller.
 */
export async function createLoginRole(
  ctx: Ctx,
  project: ProjectAccess,
  { read_only: readOnly }: z.output<typeof CreateLoginRole>,
) {
  checkStatus(project.status)
  const { ref } = project
  const now = ctx.now()
  const expiresAt = new Date(now.getTime() + TTL_SECONDS * 1_000)
  const role = loginRole('cli', randomLetters(8))
  const password = newPassword()
  const power = readOnly ? 'reader' : 'owner'
  /** Inserts the row and returns the logins that it replaces. Undefined at the limit, unless an unused login can be replaced. */
  const insert = (inUse?: string[]) =>
    changeProject(ctx, project, async ({ tx, record }) => {
      // Read under the lock, so that a login which another caller has just replaced does not count.
      const isOpen = and(isCliLogin(ref), gt(temporaryLogins.expiresAt, ctx.now()))
      const isFull = (await tx.$count(temporaryLogins, isOpen)) >= ROLES_MAX
      const replaced =
        isFull && inUse ? await expireOldest(ctx, tx, and(isOpen, notInArray(temporaryLogins.role, inUse))) : []
      if (isFull && replaced.length === 0) return undefined
      for (const login of replaced) await record('project.login.delete', { role: login.role })
      await tx.insert(temporaryLogins).values({
        role,
        projectRef: ref,
        tokenId: ctx.actor.tokenId,
        grantedRole: power,
        readOnly,
        expiresAt,
        createdAt: now,
      })
      await record('project.login.create', { role, readOnly })
      return replaced
    })
  const replaced = (await insert()) ?? (await insert(await loginsInUse(ctx, ref)))
  if (!replaced) {
    throw new ApiError('conflict.login_roles', {
      detail: `at most ${ROLES_MAX} can be open at once, and none of yours is unused; delete them or wait until they expire`,
    })
  }
  await endLogins(ctx, replaced)
  await makeLogin(ctx, { ref, role, power, password, expiresAt })
  return { role, password, ttl_seconds: TTL_SECONDS }
}

export async function deleteLoginRoles(ctx: Ctx, project: ProjectAccess) {
  const ended = await mutate(ctx, async ({ tx, trace }) => {
    await trace({ project, action: 'project.login.delete' })
    return expireLogins(tx, ctx.now(), isCliLogin(project.ref))
  })
  await endLogins(ctx, ended)
  return { message: 'ok' as const }
}

/** Marks the oldest of these logins as expired that was created with any token of the caller. */
function expireOldest({ actor, now }: Ctx, tx: Writer, condition: SQL | undefined) {
  const oldest = tx
    .select({ role: temporaryLogins.role })
    .from(temporaryLogins)
    .innerJoin(accessTokens, eq(accessTokens.id, temporaryLogins.tokenId))
    .where(and(condition, eq(accessTokens.userId, actor.userId)))
    .orderBy(temporaryLogins.createdAt)
    .limit(1)
  return expireLogins(tx, now(), inArray(temporaryLogins.role, oldest))
}

const isCliLogin = (ref: string) => and(eq(temporaryLogins.projectRef, ref), isNull(temporaryLogins.userId))
