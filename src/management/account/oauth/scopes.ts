import { SCOPES, type Scope } from '../../../model/scopes.ts'

interface Options {
  /** Accepts `openid`, which requests an ID token and no access to the API, so the result may be empty. */
  takesOpenId?: boolean
}

/** Returns the requested scopes, each once and in the order of the specification; undefined if one is not allowed. */
export function chooseScopes(
  requested: string | undefined,
  allowed: readonly Scope[],
  { takesOpenId = false }: Options = {},
): Scope[] | undefined {
  if (requested === undefined) return [...allowed]
  const names = new Set(requested.split(' ').filter((name) => name !== ''))
  const isOpenId = takesOpenId && names.delete('openid')
  const chosen = SCOPES.filter((scope) => names.has(scope) && allowed.includes(scope))
  return (names.size > 0 || isOpenId) && chosen.length === names.size ? chosen : undefined
}
