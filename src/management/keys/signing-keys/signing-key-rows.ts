import { and, asc, eq } from 'drizzle-orm'
import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { signingKeys } from '../../../model/tables/index.ts'
import type { Writer } from '../../../platform/db/client.ts'
import { changeProject, type ProjectChange } from '../../kernel/change-project.ts'
import { incrementSecretsGeneration } from '../../programs/secrets/service.ts'
import type { SigningKey } from './schema.ts'

export type SigningKeyRow = typeof signingKeys.$inferSelect

/** The columns that clients may read; the private key is not among them. */
export const PUBLIC_COLUMNS = {
  id: signingKeys.id,
  algorithm: signingKeys.algorithm,
  status: signingKeys.status,
  publicJwk: signingKeys.publicJwk,
  createdAt: signingKeys.createdAt,
  updatedAt: signingKeys.updatedAt,
}
type PublicRow = Pick<SigningKeyRow, keyof typeof PUBLIC_COLUMNS>

export const toSigningKey = (row: PublicRow): z.input<typeof SigningKey> => ({
  id: row.id,
  algorithm: row.algorithm,
  status: row.status,
  public_jwk: row.publicJwk,
  created_at: row.createdAt.toISOString(),
  updated_at: row.updatedAt.toISOString(),
})

export const ofProject = (ref: string) => eq(signingKeys.projectRef, ref)
export const isSigningKey = (ref: string, id: string) => and(ofProject(ref), eq(signingKeys.id, id))

interface Change extends ProjectChange {
  /** All signing keys of the project, oldest first. */
  keys: SigningKeyRow[]
}

/** Changes signing keys of a project. Programs load the published keys at start, so they restart if those change. */
export const changeKeys = <T>(ctx: Ctx, project: ProjectAccess, work: (change: Change) => Promise<T>): Promise<T> =>
  changeProject(ctx, project, async (change) => {
    const { ref } = project
    const keys = await readKeys(change.tx, ref)
    const result = await work({ ...change, keys })
    if (publishedIds(keys) !== publishedIds(await readKeys(change.tx, ref)))
      await incrementSecretsGeneration(change, ref)
    return result
  })

const publishedIds = (keys: readonly SigningKeyRow[]): string =>
  keys.flatMap(({ id, status, publicJwk }) => (publicJwk && status !== 'revoked' ? [id] : [])).join()

const readKeys = (tx: Writer, ref: string): Promise<SigningKeyRow[]> =>
  tx.select().from(signingKeys).where(ofProject(ref)).orderBy(asc(signingKeys.createdAt), asc(signingKeys.id))

/** Retires the key in use before another one replaces it: at most one key is in use. */
export async function retireCurrentKey(
  tx: Writer,
  keys: readonly SigningKeyRow[],
  now: Date,
): Promise<SigningKeyRow | undefined> {
  const current = keys.find(({ status }) => status === 'in_use')
  if (!current) return undefined
  await tx
    .update(signingKeys)
    .set({ status: 'previously_used', updatedAt: now })
    .where(isSigningKey(current.projectRef, current.id))
  return current
}
