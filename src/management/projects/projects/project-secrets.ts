import { eq, sql } from 'drizzle-orm'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx, SystemCtx } from '../../../ctx.ts'
import { newJwtSecret, newPassword, sealSecret } from '../../../model/secrets/project.ts'
import { projects } from '../../../model/tables/index.ts'
import { inTransaction } from '../../../platform/db/client.ts'
import { controlDatabase } from '../../../platform/db/control-database.ts'
import { mutate } from '../../kernel/mutate.ts'

/** The secrets of a new project: the owner's password as he chose it, the others made here. */
export async function sealSecrets(ctx: SystemCtx, ref: string, password: string) {
  return {
    sealedPassword: await sealSecret(ctx, ref, 'password', password),
    sealedRunnerPassword: await sealSecret(ctx, ref, 'runner_password', newPassword()),
    sealedJwtSecret: await sealSecret(ctx, ref, 'jwt_secret', newJwtSecret()),
  }
}

/**
 * Written down before it is set: what sets the owner's password again, such as the end of a temporary login, then sets the
 * new one. One change of a project's at a time, so that the last one written is the last one set.
 */
export async function changePassword(
  ctx: Ctx,
  project: ProjectAccess,
  password: string,
  set: () => Promise<void>,
): Promise<void> {
  const { ref } = project
  const sealed = await sealSecret(ctx, ref, 'password', password)
  await inTransaction(controlDatabase(ctx.config), async (tx) => {
    // Not the row itself, which what is written must not wait for.
    await tx.execute(sql`select pg_advisory_xact_lock(hashtextextended(${`password ${ref}`}, 0))`)
    const before = await writePassword(ctx, project, 'update', sealed)
    try {
      await set()
    } catch (error) {
      await writePassword(ctx, project, 'restore', before)
      throw error
    }
  })
}

/** Returns what was written there before. */
const writePassword = (
  ctx: Ctx,
  { ref, organizationId }: ProjectAccess,
  verb: 'update' | 'restore',
  sealedPassword: string,
): Promise<string> =>
  mutate(ctx, async ({ tx, trace }) => {
    const [row] = await tx
      .select({ sealedPassword: projects.sealedPassword })
      .from(projects)
      .where(eq(projects.ref, ref))
      .for('no key update')
    if (!row) throw new Error(`the project ${ref} has no row`)
    await tx.update(projects).set({ sealedPassword }).where(eq(projects.ref, ref))
    await trace({ action: `project.password.${verb}`, organizationId, projectRef: ref })
    return row.sealedPassword
  })
