import { REF } from '../platform/identifiers.ts'
/** The names of a project's roles and database on its server. */
export interface ProjectNames {
  database: string
  owner: string
  runner: string
  reader: string
  storage: string
  /** Logs in for the Data API and switches to the role of each caller. */
  dataApi: string
}

/** All identifiers that the engine writes into SQL unquoted; they consist of letters and `_` alone. */
export function projectNames(ref: string): ProjectNames {
  if (!REF.test(ref)) throw new Error('Invalid project ref: it must be 20 lowercase letters')
  const owner = `p_${ref}`
  const storage = `${owner}_storage`
  return { database: owner, owner, runner: `${owner}_sql`, reader: `${owner}_read`, storage, dataApi: storage }
}

/** Pattern of the role names of temporary logins. */
export const TEMPORARY_LOGIN = '^(cli|jit)_login_[a-z]{8}$'

export function loginRoles({ owner, runner, reader, storage }: ProjectNames): string[] {
  return [...new Set([owner, runner, reader, storage])]
}

export const quoteIdentifier = (name: string): string => `"${name.replaceAll('"', '""')}"`

export function quoteLiteral(text: string): string {
  if (text.includes('\0')) throw new Error('An SQL literal cannot contain a NUL character')
  const quoted = `'${text.replaceAll("'", "''")}'`
  return text.includes('\\') ? ` E${quoted.replaceAll('\\', '\\\\')}` : quoted
}

export function quoteLiterals(texts: readonly string[]): string {
  return texts.map(quoteLiteral).join(', ')
}
