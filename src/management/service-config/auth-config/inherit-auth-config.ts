import { changedFields, mergeFields } from '../../projects/settings/setting-areas.ts'
import { contradicting } from './consistency.ts'
import type { FieldName } from './fields.ts'
import { type Kept, rememberedDigests, toAuthConfig } from './stored-config.ts'

interface Heir {
  value: Kept
  /** Fields that stay as they are, as the parent's would contradict what is the branch's own. */
  leftOut: FieldName[]
}

/** `theirs` is bound to the branch already: its secrets are sealed for the branch's row, and its digests the branch's. */
export function inheritAuthConfig(mine: Kept, theirs: Kept, own: readonly string[]): Heir {
  const all = merge(mine, theirs, own)
  const leftOut = contradicting(toAuthConfig(mine), toAuthConfig(all), changedFields('auth', mine, all))
  const value = merge(mine, theirs, [...own, ...leftOut])
  return { value: { ...value, digests: rememberedDigests(mine, changedFields('auth', mine, value)) }, leftOut }
}

const merge = (mine: Kept, theirs: Kept, own: readonly string[]): Kept => ({
  values: mergeFields(mine.values, theirs.values, own),
  secrets: mergeFields(mine.secrets, theirs.secrets, own),
})
