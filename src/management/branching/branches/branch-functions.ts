import { eq } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { branchAssociatedData } from '../../../model/secrets/associated-data.ts'
import { branches } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { unseal } from '../../../platform/secrets/seal.ts'
import { copyFunctions, FunctionFilesMissing } from '../../programs/functions/copy-functions.ts'
import { inheritSecrets } from '../../programs/secrets/inherit-secrets.ts'
import { errorText } from '../../projects/projects/task-reason.ts'
import { PermanentError } from '../../projects/projects/tasks.ts'
import type { StepInput } from './runs.ts'

/** Copies the parent's functions to the branch, except those changed on the branch later. Secrets are inherited too. */
export async function deployToBranch(ctx: SystemCtx, input: StepInput): Promise<void> {
  const { own, parent, run, log } = input
  const exactly = run.kind === 'reset'
  const givenSecrets = await readGivenSecrets(ctx, input)
  const secrets = await inheritSecrets(ctx, {
    from: parent.ref,
    to: own,
    ownSecrets: givenSecrets,
    restoreDeleted: exactly,
  })
  if (secrets > 0) await log(`${secrets} secrets set`)
  await copy(ctx, input, { from: parent, to: own, exactly })
}

/** Copies the functions changed on the branch to the parent. Secrets are not copied. */
export const deployToParent = (ctx: SystemCtx, input: StepInput): Promise<void> =>
  copy(ctx, input, { from: input.own, to: input.parent, exactly: false })

async function readGivenSecrets(
  { config, db }: SystemCtx,
  { branch: { id } }: StepInput,
): Promise<Record<string, string>> {
  const [found] = await db.select({ sealed: branches.sealedSecrets }).from(branches).where(eq(branches.id, id))
  return found?.sealed ? JSON.parse(await unseal(config.ENCRYPTION_KEY, found.sealed, branchAssociatedData(id))) : {}
}

type CopyOptions = Pick<Parameters<typeof copyFunctions>[1], 'from' | 'to' | 'exactly'>

async function copy(ctx: SystemCtx, { fence, log }: StepInput, options: CopyOptions): Promise<void> {
  await copyFunctions(ctx, { ...options, fence, log }).catch((error) => {
    const isPermanent = error instanceof FunctionFilesMissing || (error instanceof ApiError && error.status < 500)
    throw isPermanent ? new PermanentError(errorText(error), { cause: error }) : error
  })
}
