import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { rootKeyAssociatedData } from '../../../model/secrets/associated-data.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { seal, unseal } from '../../../platform/secrets/seal.ts'
import { changeProject } from '../../kernel/change-project.ts'
import { readSettings, saveSettings } from '../../projects/settings/read-settings.ts'
import { ROOT_KEY } from './schema.ts'

const AREA = 'pgsodium' as const

/** Creates the key on the first read; concurrent readers get the same key. */
export async function getPgsodiumConfig(ctx: Ctx, project: ProjectAccess) {
  const { value } = await readSettings(ctx.db, project.ref, AREA)
  const sealed = value?.sealed_root_key ?? (await createKey(ctx, project))
  return { root_key: await unseal(ctx.config.ENCRYPTION_KEY, sealed, rootKeyAssociatedData(project.ref)) }
}

export async function updatePgsodiumConfig(ctx: Ctx, project: ProjectAccess, rootKey: string) {
  if (!ROOT_KEY.test(rootKey)) throw new ApiError('bad_request.root_key')
  const settings = await newSettings(ctx, project.ref, rootKey)
  await changeProject(ctx, project, async ({ tx, record }) => {
    await saveSettings(tx, settings)
    await record('project.pgsodium.update', { fields: ['root_key'] })
  })
  return { root_key: rootKey }
}

async function createKey(ctx: Ctx, project: ProjectAccess): Promise<string> {
  const bytes = crypto.getRandomValues(new Uint8Array(32))
  const rootKey = Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')
  const settings = await newSettings(ctx, project.ref, rootKey)
  return changeProject(ctx, project, async ({ tx, record }) => {
    const { value: existing } = await readSettings(tx, project.ref, AREA)
    if (existing) return existing.sealed_root_key
    await saveSettings(tx, settings)
    await record('project.pgsodium.create')
    return settings.value.sealed_root_key
  })
}

const newSettings = async ({ config, now }: Ctx, ref: string, rootKey: string) => ({
  ref,
  area: AREA,
  value: { sealed_root_key: await seal(config.ENCRYPTION_KEY, rootKey, rootKeyAssociatedData(ref)) },
  updatedAt: now(),
})
