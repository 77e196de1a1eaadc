import { eq } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { openFunctionSecret } from '../../../model/secrets/function.ts'
import { functionSecrets } from '../../../model/tables/index.ts'
import { changeProject } from '../../kernel/change-project.ts'
import { PermanentError } from '../../projects/projects/tasks.ts'
import { clearDeletions, deletedAtByName, selectDeletions } from '../functions/deletions.ts'
import { incrementSecretsGeneration, saveSecrets, toSecretRow } from './service.ts'

interface Inheritance {
  from: string
  to: { ref: string; organizationId: string }
  /** Secrets set on the target itself; these names are never inherited. */
  ownSecrets: Readonly<Record<string, string>>
  /** Whether to also restore secrets that the target has deleted. */
  restoreDeleted: boolean
}

/** Copies secrets to another project. The latest change of a secret wins, including deletions. Returns the number of secrets set. */
export async function inheritSecrets(
  ctx: SystemCtx,
  { from, to, ownSecrets, restoreDeleted }: Inheritance,
): Promise<number> {
  return changeProject(ctx, to, async (mutation) => {
    const { tx } = mutation
    const rowsOf = (ref: string) => tx.select().from(functionSecrets).where(eq(functionSecrets.projectRef, ref))
    const sourceRows = await rowsOf(from)
    const present = new Map((await rowsOf(to.ref)).map((row) => [row.name, row]))
    if (restoreDeleted) await clearDeletions(tx, to.ref, 'secret')
    const deleted = deletedAtByName(await selectDeletions(tx, to.ref, 'secret'))
    const inherited = sourceRows.filter(({ name, updatedAt }) => {
      const changedInTarget = present.get(name)?.updatedAt ?? deleted.get(name)
      return !Object.hasOwn(ownSecrets, name) && (!changedInTarget || updatedAt > changedInTarget)
    })
    const ownMissing = Object.entries(ownSecrets).filter(([name]) => !present.has(name) && !deleted.has(name))
    const rows = await Promise.all([
      ...inherited.map(async (row) => {
        const value = await openFunctionSecret(ctx.config.ENCRYPTION_KEY, from, row.name, row.sealedValue)
        return { ...(await toSecretRow(ctx, to.ref, { name: row.name, value })), updatedAt: row.updatedAt }
      }),
      ...ownMissing.map(([name, value]) => toSecretRow(ctx, to.ref, { name, value })),
    ])
    if (rows.length === 0) return 0
    await incrementSecretsGeneration(mutation, to.ref)
    const exceeded = await saveSecrets(mutation, to.ref, rows)
    if (exceeded) throw new PermanentError(`the secrets of ${to.ref} exceed the limit (${exceeded}): delete some`)
    await mutation.record('secret.inherit', { names: rows.map(({ name }) => name) })
    return rows.length
  })
}
