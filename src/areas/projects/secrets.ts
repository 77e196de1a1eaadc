import { eq } from 'drizzle-orm'
import type { ProjectAccess } from '../../auth/access.ts'
import { mutate } from '../../db/mutate.ts'
import { projects } from '../../db/schema/index.ts'
import type { Ctx } from '../../env.ts'
import { newJwtSecret, newPassword, sealSecret } from '../../secrets/project.ts'

/** The secrets of a new project: the owner's password as he chose it, the others made here. */
export async function sealSecrets(ctx: Ctx, ref: string, password: string) {
  return {
    sealedPassword: await sealSecret(ctx, ref, 'password', password),
    sealedRunnerPassword: await sealSecret(ctx, ref, 'runner_password', newPassword()),
    sealedJwtSecret: await sealSecret(ctx, ref, 'jwt_secret', newJwtSecret()),
  }
}

export async function savePassword(ctx: Ctx, { ref, organizationId }: ProjectAccess, password: string): Promise<void> {
  const sealedPassword = await sealSecret(ctx, ref, 'password', password)
  await mutate(ctx, async ({ tx, trace }) => {
    await tx.update(projects).set({ sealedPassword }).where(eq(projects.ref, ref))
    await trace({ action: 'project.password.update', organizationId, projectRef: ref })
  })
}
