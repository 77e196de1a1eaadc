import { SCOPES, type Scope } from '../../../model/scopes.ts'

interface Options {
  /** `openid` asks for an ID token, and for nothing of this API: with it alone there may be no scope. */
  takesOpenId?: boolean
}

/** Those that are asked for, each once and in the order of the specification; undefined where one is not among `allowed`. */
export function chooseScopes(
  asked: string | undefined,
  allowed: readonly Scope[],
  { takesOpenId = false }: Options = {},
): Scope[] | undefined {
  if (asked === undefined) return [...allowed]
  const names = new Set(asked.split(' ').filter((name) => name !== ''))
  const isOpenId = takesOpenId && names.delete('openid')
  const chosen = SCOPES.filter((scope) => names.has(scope) && allowed.includes(scope))
  return (names.size > 0 || isOpenId) && chosen.length === names.size ? chosen : undefined
}
