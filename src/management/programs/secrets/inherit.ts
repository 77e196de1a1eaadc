import { eq } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { openFunctionSecret } from '../../../model/secrets/function.ts'
import { functionSecrets } from '../../../model/tables/index.ts'
import { PermanentError } from '../../projects/projects/tasks.ts'
import { deletedAtByName, forgetDeletions, selectDeletions } from '../functions/deletions.ts'
import { changeFunctions } from '../functions/function-rows.ts'
import { countChange, saveSecrets, sealed } from './service.ts'

interface Inheritance {
  from: string
  to: { ref: string; organizationId: string }
  /** What the heir was given as its own; such names are never inherited. */
  own: Readonly<Record<string, string>>
  /** Also what the heir has deleted since. */
  again: boolean
}

/** Of a secret that both have or had, what was done last counts, a deletion too. Returns how many were set. */
export async function inheritSecrets(ctx: SystemCtx, { from, to, own, again }: Inheritance): Promise<number> {
  return changeFunctions(ctx, to.ref, async (mutation) => {
    const { tx } = mutation
    const rowsOf = (ref: string) => tx.select().from(functionSecrets).where(eq(functionSecrets.projectRef, ref))
    const theirs = await rowsOf(from)
    const present = new Map((await rowsOf(to.ref)).map((row) => [row.name, row]))
    if (again) await forgetDeletions(tx, to.ref, 'secret')
    const deleted = deletedAtByName(await selectDeletions(tx, to.ref, 'secret'))
    const inherited = theirs.filter(({ name, updatedAt }) => {
      const doneThere = present.get(name)?.updatedAt ?? deleted.get(name)
      return !Object.hasOwn(own, name) && (!doneThere || updatedAt > doneThere)
    })
    const given = Object.entries(own).filter(([name]) => !present.has(name) && !deleted.has(name))
    const rows = await Promise.all([
      ...inherited.map(async (row) => {
        const value = await openFunctionSecret(ctx.config.ENCRYPTION_KEY, from, row.name, row.sealedValue)
        return { ...(await sealed(ctx, to.ref, { name: row.name, value })), updatedAt: row.updatedAt }
      }),
      ...given.map(([name, value]) => sealed(ctx, to.ref, { name, value })),
    ])
    if (rows.length === 0) return 0
    await countChange(mutation, to.ref)
    const beyond = await saveSecrets(mutation, to.ref, rows)
    if (beyond) throw new PermanentError(`the secrets of ${to.ref} would be too many (${beyond}): delete some`)
    const detail = { names: rows.map(({ name }) => name) }
    await mutation.trace({
      action: 'secret.inherit',
      organizationId: to.organizationId,
      projectRef: to.ref,
      detail,
    })
    return rows.length
  })
}
