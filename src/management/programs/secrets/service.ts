import { and, asc, eq, inArray, isNull, sql } from 'drizzle-orm'
import { type ProjectAccess, requireNotGoingDown } from '../../../access/access.ts'
import type { Ctx, SystemCtx } from '../../../ctx.ts'
import { sealFunctionSecret } from '../../../model/secrets/function.ts'
import { functionSecrets, projects } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { sha256Of } from '../../../platform/secrets/digest.ts'
import type { Mutation } from '../../kernel/mutate.ts'
import { recordDeletion } from '../functions/deletions.ts'
import { changeFunctions } from '../functions/function-rows.ts'
import type { NewSecrets } from './schema.ts'

/** All of them are held by each function that runs. */
const SECRETS_MAX = 100
/** Of names and values; with more, and what is set beside them, no program starts. */
const SIZE_KIB_MAX = 768

export async function listSecrets({ db }: Ctx, { ref }: ProjectAccess) {
  const rows = await db
    .select()
    .from(functionSecrets)
    .where(eq(functionSecrets.projectRef, ref))
    .orderBy(asc(functionSecrets.name))
  return rows.map(({ name, digest, updatedAt }) => ({ name, value: digest, updated_at: updatedAt.toISOString() }))
}

/** Of a name that comes twice the last value counts. */
export async function createSecrets(ctx: Ctx, { ref, organizationId }: ProjectAccess, list: NewSecrets) {
  if (list.length === 0) return
  const values = Array.from(new Map(list.map(({ name, value }) => [name, value])), ([name, value]) => ({ name, value }))
  const rows = await Promise.all(values.map((secret) => sealed(ctx, ref, secret)))
  await changeSecrets(ctx, ref, async (mutation) => {
    const beyond = await saveSecrets(mutation, ref, rows)
    if (beyond) throw new ApiError('bad_request.secrets', { detail: beyond })
    const detail = { names: values.map(({ name }) => name) }
    await mutation.trace({ action: 'secret.create', organizationId, projectRef: ref, detail })
  })
}

type SecretRow = typeof functionSecrets.$inferInsert

export const sealed = async (
  ctx: SystemCtx,
  ref: string,
  { name, value }: { name: string; value: string },
): Promise<SecretRow> => ({
  projectRef: ref,
  name,
  sealedValue: await sealFunctionSecret(ctx.config.ENCRYPTION_KEY, ref, name, value),
  digest: await sha256Of(value),
  updatedAt: ctx.now(),
})

/** Says what bound these go beyond, where they do: the caller is to undo it. What was beyond it before may be replaced. */
export async function saveSecrets(mutation: Mutation, ref: string, rows: readonly SecretRow[]) {
  const before = await measure(mutation, ref)
  await mutation.tx
    .insert(functionSecrets)
    .values([...rows])
    .onConflictDoUpdate({
      target: [functionSecrets.projectRef, functionSecrets.name],
      set: {
        sealedValue: sql`excluded.sealed_value`,
        digest: sql`excluded.digest`,
        updatedAt: sql`excluded.updated_at`,
      },
    })
  const after = await measure(mutation, ref)
  if (after.count > SECRETS_MAX && after.count > before.count) return `at most ${SECRETS_MAX}`
  if (after.kib > SIZE_KIB_MAX && after.kib > before.kib) return `value: at most ${SIZE_KIB_MAX} KiB in all`
  return undefined
}

async function measure({ tx }: Mutation, ref: string): Promise<{ count: number; kib: number }> {
  const { projectRef, name, sealedValue } = functionSecrets
  const [held] = await tx
    .select({
      count: sql<number>`count(*)::int`,
      kib: sql<number>`coalesce(sum(octet_length(${name}) + octet_length(${sealedValue}) * 3 / 4) / 1024, 0)::float8`,
    })
    .from(functionSecrets)
    .where(eq(projectRef, ref))
  return held ?? { count: 0, kib: 0 }
}

/** Functions that begin from now on have what it sets. */
const changeSecrets = <T>(ctx: Ctx, ref: string, work: (mutation: Mutation) => Promise<T>): Promise<T> =>
  changeFunctions(ctx, ref, work, countChange)

/** Locks the project too. */
export async function countChange({ tx }: Mutation, ref: string): Promise<void> {
  const [changed] = await tx
    .update(projects)
    .set({ secretsGeneration: sql`${projects.secretsGeneration} + 1` })
    .where(and(eq(projects.ref, ref), isNull(projects.removedAt)))
    .returning({ status: projects.status })
  if (!changed) throw new ApiError('not_found.project')
  requireNotGoingDown(changed)
}

export async function deleteSecrets(ctx: Ctx, { ref, organizationId }: ProjectAccess, names: readonly string[]) {
  if (names.length === 0) return
  await changeSecrets(ctx, ref, async (mutation) => {
    const removed = await mutation.tx
      .delete(functionSecrets)
      .where(and(eq(functionSecrets.projectRef, ref), inArray(functionSecrets.name, [...names])))
      .returning({ name: functionSecrets.name })
    const deleted = removed.map(({ name }) => name)
    await recordDeletion(mutation.tx, { ref, kind: 'secret', names: deleted, at: ctx.now() })
    const detail = { names: deleted }
    await mutation.trace({ action: 'secret.delete', organizationId, projectRef: ref, detail })
  })
}
