import { and, eq, gt, isNull } from 'drizzle-orm'
import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { loginRole } from '../../../engine/logins.ts'
import { newPassword } from '../../../model/secrets/project.ts'
import { temporaryLogins } from '../../../model/tables/index.ts'
import { randomLetters } from '../../../platform/http/common-values.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { changeProject } from '../../kernel/change-project.ts'
import { mutate } from '../../kernel/mutate.ts'
import { requireActive } from '../database/service.ts'
import type { CreateLoginRole } from './schema.ts'
import { endLogins, expireLogins, makeLogin } from './temporary-logins.ts'

const TTL_SECONDS = 1_800
const ROLES_MAX = 50

/** Creates a login role for the CLI. Its password is returned once and not stored. */
export async function createLoginRole(
  ctx: Ctx,
  project: ProjectAccess,
  { read_only: readOnly }: z.output<typeof CreateLoginRole>,
) {
  requireActive(project)
  const { ref } = project
  const now = ctx.now()
  const expiresAt = new Date(now.getTime() + TTL_SECONDS * 1_000)
  const role = loginRole('cli', randomLetters(8))
  const password = newPassword()
  const power = readOnly ? 'reader' : 'owner'
  await changeProject(ctx, project, async ({ tx, record }) => {
    const open = await tx.$count(temporaryLogins, and(isCliLogin(ref), gt(temporaryLogins.expiresAt, now)))
    if (open >= ROLES_MAX) {
      throw new ApiError('conflict.login_roles', {
        detail: `at most ${ROLES_MAX} can be open at once; delete them or wait until they expire`,
      })
    }
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
  })
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

const isCliLogin = (ref: string) => and(eq(temporaryLogins.projectRef, ref), isNull(temporaryLogins.userId))
