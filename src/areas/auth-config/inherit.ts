import type { SystemCtx } from '../../env.ts'
import { changeSettings } from '../settings/change.ts'
import { readSettings } from '../settings/rows.ts'
import { fieldsOf, type Kept, keptFor, toAuthConfig } from './kept.ts'
import { isConsistent } from './rules.ts'

/** A branch takes over each field that it has not set itself, unless the two together would contradict each other. */
export async function inheritAuthConfig(ctx: SystemCtx, fromRef: string, ref: string): Promise<void> {
  const { value: theirs, updatedAt } = await readSettings(ctx.db, fromRef, 'auth')
  if (!updatedAt) return
  const inherited = await keptFor(ctx, fromRef, ref, theirs)
  const work = async (own: Kept) => {
    const values = { ...inherited.values, ...own.values }
    const secrets = { ...inherited.secrets, ...own.secrets }
    const after = { values, secrets }
    return fieldsOf(own, after).length > 0 && isConsistent(toAuthConfig(after)) ? after : undefined
  }
  await changeSettings(ctx, { ref, area: 'auth', work, fieldsOf })
}
