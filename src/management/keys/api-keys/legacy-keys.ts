import { and, eq } from 'drizzle-orm'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { jwtSecretOf } from '../../../model/secrets/project.ts'
import { signingKeys } from '../../../model/tables/index.ts'
import type { Writer } from '../../../platform/db/client.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { legacyKeys } from '../../../services/gateway/credentials.ts'
import { changeProject } from '../../kernel/change-project.ts'
import { readSettings, saveSettings } from '../../projects/settings/read-settings.ts'
import { toLegacyKey } from './convert.ts'

/** Lists the legacy keys. The anon key is public. The service_role key bypasses every policy, so it is only revealed on request. */
export async function listLegacyKeys(ctx: Ctx, project: ProjectAccess, reveal: boolean) {
  const { ref, createdAt } = project
  const keys = legacyKeys({ ref, createdAt, jwtSecret: await jwtSecretOf(ctx, project) })
  return [await toLegacyKey('anon', keys.anon, true), await toLegacyKey('service_role', keys.service_role, reveal)]
}

export const getLegacyApiKeys = async ({ db }: Ctx, { ref }: ProjectAccess) =>
  (await readSettings(db, ref, 'legacy_api_keys')).value

export async function updateLegacyApiKeys(ctx: Ctx, project: ProjectAccess, enabled: boolean) {
  const { ref } = project
  await changeProject(ctx, project, async ({ tx, record }) => {
    if (enabled) await requireJwtSecretValid(tx, ref)
    await saveSettings(tx, { ref, area: 'legacy_api_keys', value: { enabled }, updatedAt: ctx.now() })
    await record('project.legacy_api_keys.update', { enabled })
  })
  return { enabled }
}

/** Requires that the JWT secret is not revoked: it signs the legacy keys, which would otherwise be enabled but invalid. */
async function requireJwtSecretValid(tx: Writer, ref: string): Promise<void> {
  const [revoked] = await tx
    .select({ id: signingKeys.id })
    .from(signingKeys)
    .where(and(eq(signingKeys.projectRef, ref), eq(signingKeys.isLegacy, true), eq(signingKeys.status, 'revoked')))
  if (!revoked) return
  throw new ApiError('conflict.signing_key_status', {
    detail: `first restore the JWT secret, signing key ${revoked.id}`,
  })
}
