import { createHash } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import { errorMessage } from '../../dev/start-error.ts'
import { BoundedMap } from '../../src/platform/bounded-map.ts'
import { findRoute, type Route } from '../gateway/route.ts'
import type { HostKey } from '../key.ts'
import { Refusal } from './refusal.ts'

/**
 * The state in which a request leaves its session: `stateless` roles are known to leave no state, `reset` resets the state,
 * `script` also resets what arbitrary SQL may have left, and `single` closes the session.
 */
type Pooling = 'stateless' | 'reset' | 'script' | 'single'

/** The session that a request needs, as its connection string describes it. */
export interface Target {
  name: string
  role: string
  password: string
  /** Cache key of the login; it changes with the password. */
  login: string
  database: string
  applicationName: string | undefined
  options: string | undefined
  isTrusted: boolean
  pooling: Pooling
  /** Requests with the same key may share a session, one after the other. */
  key: string
}

const POOLED_SERVICE_ROLES = new Set(['supabase_storage_admin', 'authenticator'])
const TARGETS_MAX = 500

/** Reads the connection string of a request, which names the instance as in a connection to the gateway. */
export function openTargets(hostKey: HostKey, domain?: string): (headers: IncomingHttpHeaders) => Target {
  // Parsing takes much of the time of a small request. Only connection strings of pooled roles are cached, because they recur.
  const cache = new BoundedMap<string, Target>(TARGETS_MAX)

  return (headers) => {
    const text = headers['neon-connection-string']
    if (!text || Array.isArray(text)) throw new Refusal('08001', 'the header Neon-Connection-String is missing')
    const isTrusted = headers.authorization !== undefined
    if (isTrusted && !hostKey.matches(bearerToken(headers))) throw new Refusal('28000', 'invalid host key', 401)
    const cacheKey = `${isTrusted} ${text}`
    const cached = cache.get(cacheKey)
    if (cached) return cached
    const target = parse(text, isTrusted, domain)
    if (target.pooling !== 'single') cache.set(cacheKey, target)
    return target
  }
}

/** The token of `authorization: Bearer <token>`. */
export function bearerToken({ authorization }: IncomingHttpHeaders): string | undefined {
  return authorization && /^bearer (.+)$/i.exec(authorization)?.[1]
}

function parse(text: string, isTrusted: boolean, domain: string | undefined): Target {
  if (!URL.canParse(text)) throw new Refusal('08001', 'the connection string is not a URL')
  // A NUL ends a value of the startup message, so the rest of the text would be further parameters, such as another user.
  if (text.includes('%00')) throw new Refusal('08001', 'the connection string must not contain a NUL')
  const { username, password, hostname, pathname, searchParams } = new URL(text)
  const given = {
    user: decode(username),
    database: decode(pathname.slice(1)),
    options: searchParams.get('options') ?? '',
  }
  const { name, role, database, parameters } = routeOf(new Map(Object.entries(given)), hostname, domain)
  const applicationName = searchParams.get('application_name') ?? undefined
  const options = parameters.get('options')
  const pooling = poolingOf({ name, role, isTrusted })
  const login = [name, role, createHash('sha256').update(password).digest('base64')].join('\0')
  const key = [role, database, applicationName, options].join('\0')
  return { name, role, password: decode(password), login, database, applicationName, options, isTrusted, pooling, key }
}

function routeOf(given: ReadonlyMap<string, string>, hostname: string, domain: string | undefined): Route {
  try {
    return findRoute(given, hostname, domain)
  } catch (error) {
    throw new Refusal('08001', errorMessage(error))
  }
}

/** The target of a script that the control plane runs for the project's owner. */
export function scriptTarget(name: string, role: string, options: string): Target {
  const database = 'postgres'
  const key = [role, database, options].join('\0')
  const login = { login: '', password: '', applicationName: undefined, isTrusted: true }
  return { ...login, name, role, database, options, pooling: 'script', key }
}

function poolingOf({ name, role, isTrusted }: Pick<Target, 'name' | 'role' | 'isTrusted'>): Pooling {
  if (name === 'control' && role === 'pilothouse') return 'stateless'
  return isTrusted && POOLED_SERVICE_ROLES.has(role) ? 'reset' : 'single'
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    throw new Refusal('08001', 'the connection string is not a URL')
  }
}
