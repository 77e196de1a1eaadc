import type { WorkerSpec } from '../db/schema/index.ts'

type Scope = WorkerSpec['secrets_scope']

const OURS = /^(SUPABASE|SB)_/

/** Whether a worker of this scope finds the variable in its environment. */
export function isWithin(scope: Scope, name: string): boolean {
  if (scope === undefined || scope === null || scope === 'all') return true
  if (scope === 'none') return false
  if (scope === 'supabase') return OURS.test(name)
  return scope.some(({ secret_name }) => secret_name === name)
}
