import { SCOPES, type Scope } from '../../auth/scopes.ts'

/** Those that are asked for, each once and in the order of the specification; undefined where one is not among `allowed`. */
export function chooseScopes(asked: string | undefined, allowed: readonly Scope[]): Scope[] | undefined {
  if (asked === undefined) return [...allowed]
  const names = new Set(asked.split(' ').filter((name) => name !== ''))
  const chosen = SCOPES.filter((scope) => names.has(scope) && allowed.includes(scope))
  return names.size > 0 && chosen.length === names.size ? chosen : undefined
}
