import { and, asc, eq } from 'drizzle-orm'
import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { sealSigningKey } from '../../../model/secrets/signing-key.ts'
import { signingKeys } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { generateKeyPair, importKeyPair } from './key-pair.ts'
import { byId, changeKeys, ofProject, retire, SHOWN, type SigningKeyRow, toSigningKey } from './rows.ts'
import type { CreateSigningKey } from './schema.ts'

/** They are read with every opening of the project. */
export const KEYS_MAX = 20

export async function listSigningKeys({ db }: Ctx, { ref }: ProjectAccess) {
  const rows = await db
    .select(SHOWN)
    .from(signingKeys)
    .where(ofProject(ref))
    .orderBy(asc(signingKeys.createdAt), asc(signingKeys.id))
  return { keys: rows.map(toSigningKey) }
}

export async function getSigningKey({ db }: Ctx, { ref }: ProjectAccess, id: string) {
  const [row] = await db.select(SHOWN).from(signingKeys).where(byId(ref, id))
  if (!row) throw new ApiError('not_found.signing_key')
  return toSigningKey(row)
}

export async function getLegacySigningKey({ db }: Ctx, { ref }: ProjectAccess) {
  const [row] = await db
    .select(SHOWN)
    .from(signingKeys)
    .where(and(ofProject(ref), eq(signingKeys.isLegacy, true)))
  if (!row) throw new ApiError('not_found.signing_key', { detail: 'the JWT secret is no signing key yet' })
  return toSigningKey(row)
}

export async function createSigningKey(ctx: Ctx, project: ProjectAccess, input: z.output<typeof CreateSigningKey>) {
  const { algorithm, status, private_jwk: given } = input
  const { ref: projectRef, organizationId } = project
  const { id, privateJwk, publicJwk } = await (given ? importKeyPair(algorithm, given) : generateKeyPair(algorithm))
  const sealedPrivateJwk = await sealSigningKey(ctx, { ref: projectRef, id }, privateJwk)
  const now = ctx.now()
  const row = await changeKeys(ctx, project, async ({ tx, trace, keys }) => {
    requireRoom(keys, id, status)
    const retired = status === 'in_use' ? await retire(tx, keys, now) : undefined
    const [row] = await tx
      .insert(signingKeys)
      .values({ id, projectRef, algorithm, status, sealedPrivateJwk, publicJwk, createdAt: now, updatedAt: now })
      .returning()
    const detail = { key: id, algorithm, status, imported: given !== undefined, retired: retired?.id }
    await trace({ action: 'signing_key.create', organizationId, projectRef, detail })
    return row as SigningKeyRow
  })
  return toSigningKey(row)
}

function requireRoom(keys: readonly SigningKeyRow[], id: string, status: string): void {
  if (keys.some((key) => key.id === id)) throw new ApiError('conflict.signing_key_id', { detail: id })
  if (keys.filter(({ isLegacy }) => !isLegacy).length >= KEYS_MAX) {
    throw new ApiError('conflict.signing_keys', { detail: `a project has ${KEYS_MAX} at most: delete revoked ones` })
  }
  if (status === 'standby') requireStandbyFree(keys)
}

export function requireStandbyFree(keys: readonly SigningKeyRow[]): void {
  const standby = keys.find(({ status }) => status === 'standby')
  if (!standby) return
  throw new ApiError('conflict.standby_key', { detail: `rotate to ${standby.id}, or make it previously_used, first` })
}

/** From then on the JWT secret can be rotated away and revoked like any other key. */
export async function createLegacySigningKey(ctx: Ctx, project: ProjectAccess) {
  const { ref: projectRef, organizationId } = project
  const now = ctx.now()
  const row = await changeKeys(ctx, project, async ({ tx, trace, keys }) => {
    if (keys.some(({ isLegacy }) => isLegacy)) throw new ApiError('conflict.legacy_signing_key')
    const retired = await retire(tx, keys, now)
    const [row] = await tx
      .insert(signingKeys)
      .values({ projectRef, algorithm: 'HS256', status: 'in_use', isLegacy: true, createdAt: now, updatedAt: now })
      .returning()
    const detail = { key: row?.id, retired: retired?.id }
    await trace({ action: 'signing_key.migrate', organizationId, projectRef, detail })
    return row as SigningKeyRow
  })
  return toSigningKey(row)
}
