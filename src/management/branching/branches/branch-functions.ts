import type { SystemCtx } from '../../../ctx.ts'
import { branchAssociatedData } from '../../../model/secrets/associated-data.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { unseal } from '../../../platform/secrets/seal.ts'
import { BytesGone, copyFunctions } from '../../programs/functions/copy-functions.ts'
import { inheritSecrets } from '../../programs/secrets/inherit.ts'
import { errorText } from '../../projects/projects/task-reason.ts'
import { PermanentError } from '../../projects/projects/tasks.ts'
import type { Site } from './jobs.ts'

/** The parent's functions come to the branch, beside what was changed on it since; they find the branch's own secrets. */
export async function deployToBranch(ctx: SystemCtx, site: Site): Promise<void> {
  const { own, parent, run, log } = site
  const exactly = run.kind === 'reset'
  const given = await secretsGiven(ctx, site)
  const secrets = await inheritSecrets(ctx, { from: parent.ref, to: own, own: given, again: exactly })
  if (secrets > 0) await log(`${secrets} secrets set`)
  await copy(ctx, site, { from: parent, to: own, exactly })
}

/** What was changed on the branch comes to the parent; secrets stay where they are. */
export const deployToParent = (ctx: SystemCtx, site: Site): Promise<void> =>
  copy(ctx, site, { from: site.own, to: site.parent, exactly: false })

async function secretsGiven({ config }: SystemCtx, { branch }: Site): Promise<Record<string, string>> {
  const { id, sealedSecrets } = branch
  return sealedSecrets === null
    ? {}
    : JSON.parse(await unseal(config.ENCRYPTION_KEY, sealedSecrets, branchAssociatedData(id)))
}

type Way = Pick<Parameters<typeof copyFunctions>[1], 'from' | 'to' | 'exactly'>

async function copy(ctx: SystemCtx, { fence, log }: Site, way: Way): Promise<void> {
  await copyFunctions(ctx, { ...way, fence, log }).catch((error) => {
    const wontHeal = error instanceof BytesGone || (error instanceof ApiError && error.status < 500)
    throw wontHeal ? new PermanentError(errorText(error), { cause: error }) : error
  })
}
