import { and, asc, eq, inArray, sql } from 'drizzle-orm'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx, SystemCtx } from '../../../ctx.ts'
import { sealFunctionSecret } from '../../../model/secrets/function.ts'
import { functionSecrets, projects } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { sha256Of } from '../../../platform/secrets/digest.ts'
import { changeProject } from '../../kernel/change-project.ts'
import type { Mutation } from '../../kernel/mutate.ts'
import { recordDeletion } from '../functions/deletions.ts'
import type { NewSecrets } from './schema.ts'

/** The maximum number of secrets per project: every running function has all of them in memory. */
const SECRETS_MAX = 100
/** The maximum total size of names and values. With more, and the platform's variables, programs fail to start. */
const SIZE_KIB_MAX = 768

export async function listSecrets({ db }: Ctx, { ref }: ProjectAccess) {
  const rows = await db
    .select()
    .from(functionSecrets)
    .where(eq(functionSecrets.projectRef, ref))
    .orderBy(asc(functionSecrets.name))
  return rows.map(({ name, digest, updatedAt }) => ({ name, value: digest, updated_at: updatedAt.toISOString() }))
}

/** Creates or replaces secrets. If a name occurs twice, the last value wins. */
export async function createSecrets(ctx: Ctx, project: ProjectAccess, list: NewSecrets) {
  const { ref } = project
  if (list.length === 0) return
  const values = Array.from(new Map(list.map(({ name, value }) => [name, value])), ([name, value]) => ({ name, value }))
  const rows = await Promise.all(values.map((secret) => toSecretRow(ctx, ref, secret)))
  await changeProject(ctx, project, async (mutation) => {
    await incrementSecretsGeneration(mutation, ref)
    const exceeded = await saveSecrets(mutation, ref, rows)
    if (exceeded) throw new ApiError('bad_request.secrets', { detail: exceeded })
    await mutation.record('secret.create', { names: values.map(({ name }) => name) })
  })
}

type SecretRow = typeof functionSecrets.$inferInsert

export const toSecretRow = async (
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

/** Stores secrets and returns the limit that they newly exceed, if any; the caller must then roll back. */
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
  if (after.kib > SIZE_KIB_MAX && after.kib > before.kib) return `value: at most ${SIZE_KIB_MAX} KiB in total`
  return undefined
}

async function measure({ tx }: Mutation, ref: string): Promise<{ count: number; kib: number }> {
  const { projectRef, name, sealedValue } = functionSecrets
  const [totals] = await tx
    .select({
      count: sql<number>`count(*)::int`,
      kib: sql<number>`coalesce(sum(octet_length(${name}) + octet_length(${sealedValue}) * 3 / 4) / 1024, 0)::float8`,
    })
    .from(functionSecrets)
    .where(eq(projectRef, ref))
  return totals ?? { count: 0, kib: 0 }
}

/** Increments the generation of a project's secrets, so that programs started later see the change. */
export async function incrementSecretsGeneration({ tx }: Pick<Mutation, 'tx'>, ref: string): Promise<void> {
  const secretsGeneration = sql`${projects.secretsGeneration} + 1`
  await tx.update(projects).set({ secretsGeneration }).where(eq(projects.ref, ref))
}

export async function deleteSecrets(ctx: Ctx, project: ProjectAccess, names: readonly string[]) {
  if (names.length === 0) return
  const { ref } = project
  await changeProject(ctx, project, async ({ tx, record }) => {
    await incrementSecretsGeneration({ tx }, ref)
    const removed = await tx
      .delete(functionSecrets)
      .where(and(eq(functionSecrets.projectRef, ref), inArray(functionSecrets.name, [...names])))
      .returning({ name: functionSecrets.name })
    const deleted = removed.map(({ name }) => name)
    await recordDeletion(tx, { ref, kind: 'secret', names: deleted, at: ctx.now() })
    await record('secret.delete', { names: deleted })
  })
}
