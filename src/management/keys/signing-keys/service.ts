import { and, asc, eq } from 'drizzle-orm'
import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { sealSigningKey } from '../../../model/secrets/signing-key.ts'
import { signingKeys } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { generateKeyPair, importKeyPair } from './key-pair.ts'
import type { CreateSigningKey } from './schema.ts'
import {
  changeKeys,
  isSigningKey,
  ofProject,
  PUBLIC_COLUMNS,
  retireCurrentKey,
  type SigningKeyRow,
  toSigningKey,
} from './signing-key-rows.ts'

/** The maximum number of keys per project, without the JWT secret: all are loaded whenever the project is opened. */
export const KEYS_MAX = 20

export async function listSigningKeys({ db }: Ctx, { ref }: ProjectAccess) {
  const rows = await db
    .select(PUBLIC_COLUMNS)
    .from(signingKeys)
    .where(ofProject(ref))
    .orderBy(asc(signingKeys.createdAt), asc(signingKeys.id))
  return { keys: rows.map(toSigningKey) }
}

export async function getSigningKey({ db }: Ctx, { ref }: ProjectAccess, id: string) {
  const [row] = await db.select(PUBLIC_COLUMNS).from(signingKeys).where(isSigningKey(ref, id))
  if (!row) throw new ApiError('not_found.signing_key')
  return toSigningKey(row)
}

export async function getLegacySigningKey({ db }: Ctx, { ref }: ProjectAccess) {
  const [row] = await db
    .select(PUBLIC_COLUMNS)
    .from(signingKeys)
    .where(and(ofProject(ref), eq(signingKeys.isLegacy, true)))
  if (!row) throw new ApiError('not_found.signing_key', { detail: 'the JWT secret is not a signing key yet' })
  return toSigningKey(row)
}

export async function createSigningKey(ctx: Ctx, project: ProjectAccess, input: z.output<typeof CreateSigningKey>) {
  const { algorithm, status, private_jwk: importedJwk } = input
  const { ref: projectRef } = project
  const { id, privateJwk, publicJwk } = await (importedJwk
    ? importKeyPair(algorithm, importedJwk)
    : generateKeyPair(algorithm))
  const sealedPrivateJwk = await sealSigningKey(ctx, { ref: projectRef, id }, privateJwk)
  const now = ctx.now()
  const row = await changeKeys(ctx, project, async ({ tx, record, keys }) => {
    requireKeyQuota(keys, id, status)
    const retired = status === 'in_use' ? await retireCurrentKey(tx, keys, now) : undefined
    const [row] = await tx
      .insert(signingKeys)
      .values({ id, projectRef, algorithm, status, sealedPrivateJwk, publicJwk, createdAt: now, updatedAt: now })
      .returning()
    const imported = importedJwk !== undefined
    await record('signing_key.create', { key: id, algorithm, status, imported, retired: retired?.id })
    return row as SigningKeyRow
  })
  return toSigningKey(row)
}

function requireKeyQuota(keys: readonly SigningKeyRow[], id: string, status: string): void {
  if (keys.some((key) => key.id === id)) throw new ApiError('conflict.signing_key_id', { detail: id })
  if (keys.filter(({ isLegacy }) => !isLegacy).length >= KEYS_MAX) {
    throw new ApiError('conflict.signing_keys', {
      detail: `a project can have at most ${KEYS_MAX}: delete revoked keys`,
    })
  }
  if (status === 'standby') requireStandbyFree(keys)
}

export function requireStandbyFree(keys: readonly SigningKeyRow[]): void {
  const standby = keys.find(({ status }) => status === 'standby')
  if (!standby) return
  throw new ApiError('conflict.standby_key', { detail: `first rotate to ${standby.id} or set it to previously_used` })
}

/** Turns the JWT secret into a signing key, which can then be rotated and revoked like any other. */
export async function createLegacySigningKey(ctx: Ctx, project: ProjectAccess) {
  const { ref: projectRef } = project
  const now = ctx.now()
  const row = await changeKeys(ctx, project, async ({ tx, record, keys }) => {
    if (keys.some(({ isLegacy }) => isLegacy)) throw new ApiError('conflict.legacy_signing_key')
    const retired = await retireCurrentKey(tx, keys, now)
    const [row] = await tx
      .insert(signingKeys)
      .values({ projectRef, algorithm: 'HS256', status: 'in_use', isLegacy: true, createdAt: now, updatedAt: now })
      .returning()
    await record('signing_key.migrate', { key: row?.id, retired: retired?.id })
    return row as SigningKeyRow
  })
  return toSigningKey(row)
}
