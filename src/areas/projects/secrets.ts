import { eq } from 'drizzle-orm'
import type { ProjectAccess } from '../../auth/access.ts'
import { mutate } from '../../db/mutate.ts'
import { projects } from '../../db/schema/index.ts'
import type { Ctx, SystemCtx } from '../../env.ts'
import { seal, unseal } from '../../secrets/seal.ts'

export interface ProjectSecrets {
  password: string
  runnerPassword: string
}

const place = (ref: string, column: string) => `projects/${ref}/${column}`

export async function sealSecrets({ config }: SystemCtx, ref: string, { password, runnerPassword }: ProjectSecrets) {
  return {
    sealedPassword: await seal(config.ENCRYPTION_KEY, password, place(ref, 'password')),
    sealedRunnerPassword: await seal(config.ENCRYPTION_KEY, runnerPassword, place(ref, 'runner_password')),
  }
}

export async function savePassword(ctx: Ctx, { ref, organizationId }: ProjectAccess, password: string): Promise<void> {
  const sealedPassword = await seal(ctx.config.ENCRYPTION_KEY, password, place(ref, 'password'))
  await mutate(ctx, async ({ tx, trace }) => {
    await tx.update(projects).set({ sealedPassword }).where(eq(projects.ref, ref))
    await trace({ action: 'project.password.update', organizationId, projectRef: ref })
  })
}

interface Sealed {
  ref: string
  sealedPassword: string
  sealedRunnerPassword: string
}

export const passwordOf = ({ config }: SystemCtx, { ref, sealedPassword }: Sealed): Promise<string> =>
  unseal(config.ENCRYPTION_KEY, sealedPassword, place(ref, 'password'))

export const runnerPasswordOf = ({ config }: SystemCtx, { ref, sealedRunnerPassword }: Sealed): Promise<string> =>
  unseal(config.ENCRYPTION_KEY, sealedRunnerPassword, place(ref, 'runner_password'))
