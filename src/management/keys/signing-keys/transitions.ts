import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { type SIGNING_KEY_STATUSES, signingKeys } from '../../../model/tables/index.ts'
import type { Writer } from '../../../platform/db/client.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { readSettings } from '../../projects/settings/read-settings.ts'
import { getAuthConfig } from '../../service-config/auth-config/service.ts'
import { byId, changeKeys, retire, type SigningKeyRow, toSigningKey } from './rows.ts'
import { requireStandbyFree } from './service.ts'

type Status = (typeof SIGNING_KEY_STATUSES)[number]

/** From which states a key may get to each; that in use leaves its place to another alone. */
const FROM: Record<Status, readonly Status[]> = {
  in_use: ['standby'],
  standby: ['previously_used', 'revoked'],
  previously_used: ['standby'],
  revoked: ['standby', 'previously_used'],
}

const JWT_SECONDS_MIN = 3_600

/** To put the key on standby in use is to rotate: what was in use becomes previously used with it. */
export async function updateSigningKey(ctx: Ctx, project: ProjectAccess, id: string, status: Status) {
  const { ref: projectRef, organizationId } = project
  const now = ctx.now()
  const row = await changeKeys(ctx, project, async ({ tx, trace, keys }) => {
    const key = find(keys, id)
    if (key.status === status) return key
    requireTransition(key, status)
    if (status === 'standby') requireStandbyFree(keys)
    if (status === 'revoked' && key.isLegacy) await requireLegacyApiKeysOff(tx, projectRef)
    const retired = status === 'in_use' ? await retire(tx, keys, now) : undefined
    const [row] = await tx
      .update(signingKeys)
      .set({ status, updatedAt: now, revokedAt: status === 'revoked' ? now : null })
      .where(byId(projectRef, id))
      .returning()
    const detail = { key: id, from: key.status, to: status, retired: retired?.id }
    await trace({ action: 'signing_key.update', organizationId, projectRef, detail })
    return row as SigningKeyRow
  })
  return toSigningKey(row)
}

function find(keys: readonly SigningKeyRow[], id: string): SigningKeyRow {
  const key = keys.find((key) => key.id === id)
  if (!key) throw new ApiError('not_found.signing_key')
  return key
}

function requireTransition({ status: from }: SigningKeyRow, to: Status): void {
  if (FROM[to].includes(from)) return
  const way = from === 'in_use' ? 'put another key in use first' : 'put it on standby first'
  throw new ApiError('conflict.signing_key_status', { detail: `it is ${from} and cannot become ${to}: ${way}` })
}

/** The anon and service_role keys are signed by it: they would go on being shown, and open nothing. */
async function requireLegacyApiKeysOff(tx: Writer, ref: string): Promise<void> {
  const { value } = await readSettings(tx, ref, 'legacy_api_keys')
  if (!value.enabled) return
  throw new ApiError('conflict.signing_key_status', { detail: 'disable the legacy API keys first' })
}

/** Only once no token that it signed could be valid any more, had it not been revoked: until then it can be taken back. */
export async function deleteSigningKey(ctx: Ctx, project: ProjectAccess, id: string) {
  const { ref: projectRef, organizationId } = project
  const row = await changeKeys(ctx, project, async ({ tx, trace, keys }) => {
    const key = find(keys, id)
    if (key.isLegacy) throw new ApiError('conflict.signing_key_status', { detail: 'the JWT secret is never deleted' })
    await requireRevokedForLong(ctx, tx, key)
    await tx.delete(signingKeys).where(byId(projectRef, id))
    const detail = { key: id, algorithm: key.algorithm }
    await trace({ action: 'signing_key.delete', organizationId, projectRef, detail })
    return key
  })
  return toSigningKey(row)
}

async function requireRevokedForLong(ctx: Ctx, tx: Writer, { status, revokedAt, projectRef }: SigningKeyRow) {
  if (status !== 'revoked' || !revokedAt) {
    throw new ApiError('conflict.signing_key_status', { detail: `it is ${status}: revoke it first` })
  }
  const { jwt_exp: seconds } = await getAuthConfig({ db: tx }, projectRef)
  const lifetime = Math.max(seconds ?? 0, JWT_SECONDS_MIN)
  const from = new Date(revokedAt.getTime() + lifetime * 1_000)
  if (ctx.now() >= from) return
  throw new ApiError('conflict.signing_key_status', {
    detail: `it was revoked at ${revokedAt.toISOString()} and can be deleted from ${from.toISOString()} on`,
  })
}
