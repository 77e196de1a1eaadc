import { and, asc, eq } from 'drizzle-orm'
import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { signingKeys } from '../../../model/tables/index.ts'
import type { Writer } from '../../../platform/db/client.ts'
import { type Mutation, mutate } from '../../kernel/mutate.ts'
import { countChange } from '../../programs/secrets/service.ts'
import { clearProjectCaches } from '../../projects/projects/clear-project-caches.ts'
import { lockProject } from '../../projects/projects/lock-project.ts'
import type { SigningKey } from './schema.ts'

export type SigningKeyRow = typeof signingKeys.$inferSelect

/** Where clients read it, nothing of the private part is at hand. */
export const SHOWN = {
  id: signingKeys.id,
  algorithm: signingKeys.algorithm,
  status: signingKeys.status,
  publicJwk: signingKeys.publicJwk,
  createdAt: signingKeys.createdAt,
  updatedAt: signingKeys.updatedAt,
}
type Shown = Pick<SigningKeyRow, keyof typeof SHOWN>

export const toSigningKey = (row: Shown): z.input<typeof SigningKey> => ({
  id: row.id,
  algorithm: row.algorithm,
  status: row.status,
  public_jwk: row.publicJwk,
  created_at: row.createdAt.toISOString(),
  updated_at: row.updatedAt.toISOString(),
})

export const ofProject = (ref: string) => eq(signingKeys.projectRef, ref)
export const byId = (ref: string, id: string) => and(ofProject(ref), eq(signingKeys.id, id))

interface Change extends Mutation {
  /** All of the project, oldest first. */
  keys: SigningKeyRow[]
}

/**
 * Changes to the keys of one project wait for each other: each decides by what all of them are. Programs begin anew where
 * other public keys are published from then on, as they hold them.
 */
export async function changeKeys<T>(
  ctx: Ctx,
  { ref }: ProjectAccess,
  work: (change: Change) => Promise<T>,
): Promise<T> {
  try {
    return await mutate(ctx, async (mutation) => {
      const keys = await lockKeys(mutation.tx, ref)
      const result = await work({ ...mutation, keys })
      if (published(keys) !== published(await readKeys(mutation.tx, ref))) await countChange(mutation, ref)
      return result
    })
  } finally {
    clearProjectCaches(ref)
  }
}

const published = (keys: readonly SigningKeyRow[]): string =>
  keys.flatMap(({ id, status, publicJwk }) => (publicJwk && status !== 'revoked' ? [id] : [])).join()

async function lockKeys(tx: Writer, ref: string): Promise<SigningKeyRow[]> {
  await lockProject({ tx }, ref)
  return readKeys(tx, ref)
}

const readKeys = (tx: Writer, ref: string): Promise<SigningKeyRow[]> =>
  tx.select().from(signingKeys).where(ofProject(ref)).orderBy(asc(signingKeys.createdAt), asc(signingKeys.id))

/** Whose place is taken goes first: there is one at most. */
export async function retire(
  tx: Writer,
  keys: readonly SigningKeyRow[],
  now: Date,
): Promise<SigningKeyRow | undefined> {
  const current = keys.find(({ status }) => status === 'in_use')
  if (!current) return undefined
  await tx
    .update(signingKeys)
    .set({ status: 'previously_used', updatedAt: now })
    .where(byId(current.projectRef, current.id))
  return current
}
