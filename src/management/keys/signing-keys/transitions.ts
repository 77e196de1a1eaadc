import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { type SIGNING_KEY_STATUSES, signingKeys } from '../../../model/tables/index.ts'
import type { Writer } from '../../../platform/db/client.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { readSettings } from '../../projects/settings/read-settings.ts'
import { getAuthConfig } from '../../service-config/auth-config/service.ts'
import { requireStandbyFree } from './service.ts'
import { changeKeys, isSigningKey, retireCurrentKey, type SigningKeyRow, toSigningKey } from './signing-key-rows.ts'

type Status = (typeof SIGNING_KEY_STATUSES)[number]

/** The statuses from which a key may change to each status. A key in use only changes when another one replaces it. */
const ALLOWED_FROM: Record<Status, readonly Status[]> = {
  in_use: ['standby'],
  standby: ['previously_used', 'revoked'],
  previously_used: ['standby'],
  revoked: ['standby', 'previously_used'],
}

const JWT_SECONDS_MIN = 3_600

/** Updates the status. Setting the standby key in use is a rotation: the current key becomes previously used. */
export async function updateSigningKey(ctx: Ctx, project: ProjectAccess, id: string, status: Status) {
  const { ref: projectRef } = project
  const now = ctx.now()
  const row = await changeKeys(ctx, project, async ({ tx, record, keys }) => {
    const key = findKey(keys, id)
    if (key.status === status) return key
    requireTransition(key, status)
    if (status === 'standby') requireStandbyFree(keys)
    if (status === 'revoked' && key.isLegacy) await requireLegacyApiKeysOff(tx, projectRef)
    const retired = status === 'in_use' ? await retireCurrentKey(tx, keys, now) : undefined
    const [row] = await tx
      .update(signingKeys)
      .set({ status, updatedAt: now, revokedAt: status === 'revoked' ? now : null })
      .where(isSigningKey(projectRef, id))
      .returning()
    await record('signing_key.update', { key: id, from: key.status, to: status, retired: retired?.id })
    return row as SigningKeyRow
  })
  return toSigningKey(row)
}

function findKey(keys: readonly SigningKeyRow[], id: string): SigningKeyRow {
  const key = keys.find((key) => key.id === id)
  if (!key) throw new ApiError('not_found.signing_key')
  return key
}

function requireTransition({ status: from }: SigningKeyRow, to: Status): void {
  if (ALLOWED_FROM[to].includes(from)) return
  const hint = from === 'in_use' ? 'put another key in use first' : 'put it on standby first'
  throw new ApiError('conflict.signing_key_status', { detail: `a key that is ${from} cannot become ${to}: ${hint}` })
}

/** Requires that the legacy API keys are disabled: the JWT secret signs them, so they would be listed but invalid. */
async function requireLegacyApiKeysOff(tx: Writer, ref: string): Promise<void> {
  const { value } = await readSettings(tx, ref, 'legacy_api_keys')
  if (!value.enabled) return
  throw new ApiError('conflict.signing_key_status', { detail: 'disable the legacy API keys first' })
}

/** Deletes a revoked key once all tokens that it signed have expired. Until then it can be restored. */
export async function deleteSigningKey(ctx: Ctx, project: ProjectAccess, id: string) {
  const { ref: projectRef } = project
  const row = await changeKeys(ctx, project, async ({ tx, record, keys }) => {
    const key = findKey(keys, id)
    if (key.isLegacy) throw new ApiError('conflict.signing_key_status', { detail: 'the JWT secret cannot be deleted' })
    await requireTokensExpired(ctx, tx, key)
    await tx.delete(signingKeys).where(isSigningKey(projectRef, id))
    await record('signing_key.delete', { key: id, algorithm: key.algorithm })
    return key
  })
  return toSigningKey(row)
}

async function requireTokensExpired(ctx: Ctx, tx: Writer, { status, revokedAt, projectRef }: SigningKeyRow) {
  if (status !== 'revoked' || !revokedAt) {
    const next = status === 'in_use' ? 'put another key in use, then revoke this one' : 'revoke it first'
    throw new ApiError('conflict.signing_key_status', { detail: `the key is ${status}: ${next}` })
  }
  const { jwt_exp: seconds } = await getAuthConfig({ db: tx }, projectRef)
  const lifetime = Math.max(seconds ?? 0, JWT_SECONDS_MIN)
  const deletableAt = new Date(revokedAt.getTime() + lifetime * 1_000)
  if (ctx.now() >= deletableAt) return
  throw new ApiError('conflict.signing_key_status', {
    detail: `the key was revoked at ${revokedAt.toISOString()} and can be deleted from ${deletableAt.toISOString()}`,
  })
}
