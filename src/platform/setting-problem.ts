import type * as z from 'zod'

/** Matches settings whose value must not appear in a terminal or a log. */
const SECRET = /KEY|TOKEN|SECRET|DATABASE_URL/

/** Describes a refused setting in one line for the operator. */
export function settingProblem({ path, message }: z.core.$ZodIssue, settings: Record<string, unknown>): string {
  const name = String(path[0])
  const value = settings[name]
  if (value === undefined) return `${name} ${message}.`
  return `${name}${SECRET.test(name) ? '' : `=${value}`} cannot be used: ${message}.`
}
