import { isInstanceName } from '../instances/record.ts'
import { Fatal } from './messages.ts'

export interface Route {
  /** The instance: a project's reference, `control`, or the identifier of a replica. */
  name: string
  role: string
  database: string
  /** Startup parameters for the server, without user, database and routing. */
  parameters: Map<string, string>
}

const ROUTING = /^(?:project|reference)=(.*)$/
/** Matches the words of `options` as Postgres splits them: white space separates, a backslash quotes the next character. */
const WORD = /(?:\\[\s\S]|[^\s\\])+/g

export const unknownTenant = () => new Fatal('XX000', 'Tenant or user not found')

/** Finds the instance by the user's suffix, by `options` or by the TLS server name; they must agree. */
export function findRoute(
  given: ReadonlyMap<string, string>,
  servername: string | undefined,
  domain: string | undefined,
): Route {
  const { user = '', database, options, ...others } = Object.fromEntries(given)
  const dot = user.lastIndexOf('.')
  const suffix = dot > 0 && isInstanceName(user.slice(dot + 1)) ? user.slice(dot + 1) : undefined
  const routing = splitRouting(options ?? '')
  const names = new Set(
    [suffix, nameFromServerName(servername, domain), ...routing.names].filter((name) => name !== undefined),
  )
  const [name] = names
  const role = suffix === undefined ? user : user.slice(0, dot)
  if (name === undefined || !isInstanceName(name) || role === '') throw unknownTenant()
  // A line break would begin a message of its own in the server's log.
  if (isControl(role) || isControl(database))
    throw new Fatal('08P01', 'user and database must not have control characters')
  if (names.size > 1) throw new Fatal('XX000', 'user, server name and options name different projects')
  const parameters = new Map(Object.entries(others))
  if (routing.rest !== '') parameters.set('options', routing.rest)
  return { name, role, database: database || 'postgres', parameters }
}

const isControl = (text = ''): boolean => /\p{Cc}/u.test(text)

function nameFromServerName(servername: string | undefined, domain: string | undefined): string | undefined {
  const host = servername?.toLowerCase()
  if (!host || !domain || !host.endsWith(`.${domain.toLowerCase()}`)) return undefined
  // `db.<domain>` itself names no instance: it may be the gateway's own name.
  return /^db\.(.+)$/.exec(host.slice(0, -(domain.length + 1)))?.[1]
}

/** Extracts `project=…` and `reference=…`, bare or as `-c` settings, from `options`. */
function splitRouting(options: string): { names: string[]; rest: string } {
  const names: string[] = []
  const rest: string[] = []
  const words = options.match(WORD) ?? []
  for (let n = 0; n < words.length; n++) {
    const word = words[n] ?? ''
    const isFlag = word === '-c'
    const setting = isFlag ? (words[n + 1] ?? '') : word.replace(/^(?:-c|--)/, '')
    const [, name] = ROUTING.exec(setting) ?? []
    if (name !== undefined) names.push(name)
    else rest.push(...(isFlag ? words.slice(n, n + 2) : [word]))
    if (isFlag) n++
  }
  return { names, rest: rest.join(' ') }
}
