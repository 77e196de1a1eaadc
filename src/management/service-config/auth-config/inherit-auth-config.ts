import { changedFields, mergeFields } from '../../projects/settings/setting-areas.ts'
import { findInconsistentFields } from './consistency.ts'
import type { FieldName } from './fields.ts'
import { collectDigests, type StoredAuthConfig, toAuthConfig } from './stored-config.ts'

interface Inherited {
  value: StoredAuthConfig
  /** Fields that keep the branch's value, because the parent's would be inconsistent with the branch's own fields. */
  leftOut: FieldName[]
}

/** Merges the parent's configuration into the branch's. The secrets of `parent` are already encrypted for the branch. */
export function inheritAuthConfig(
  branch: StoredAuthConfig,
  parent: StoredAuthConfig,
  own: readonly string[],
): Inherited {
  const all = merge(branch, parent, own)
  const leftOut = findInconsistentFields(toAuthConfig(branch), toAuthConfig(all), changedFields('auth', branch, all))
  const value = merge(branch, parent, [...own, ...leftOut])
  return { value: { ...value, digests: collectDigests(branch, changedFields('auth', branch, value)) }, leftOut }
}

const merge = (branch: StoredAuthConfig, parent: StoredAuthConfig, own: readonly string[]): StoredAuthConfig => ({
  values: mergeFields(branch.values, parent.values, own),
  secrets: mergeFields(branch.secrets, parent.secrets, own),
})
