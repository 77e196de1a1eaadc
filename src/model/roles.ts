import { SCOPES, type Scope } from './scopes.ts'

export const ROLES = ['owner', 'administrator', 'developer', 'read-only'] as const
export type Role = (typeof ROLES)[number]

/** The names that replies show. */
export const ROLE_NAMES: Record<Role, string> = {
  owner: 'Owner',
  administrator: 'Administrator',
  developer: 'Developer',
  'read-only': 'Read-only',
}

const reads = SCOPES.filter((scope) => scope.endsWith(':read'))

/** What each role may do, in the words of the scopes. Read-only sees no secrets: a service key would let it write. */
const ALLOWED: Record<Role, ReadonlySet<Scope>> = {
  owner: new Set(SCOPES),
  administrator: new Set(SCOPES),
  developer: new Set<Scope>([...reads, 'database:write', 'environment:write', 'edge_functions:write']),
  'read-only': new Set<Scope>(reads.filter((scope) => scope !== 'secrets:read')),
}

export const roleAllows = (role: Role, permission: Scope): boolean => ALLOWED[role].has(permission)

export const rolesAllowing = (permission: Scope): Role[] => ROLES.filter((role) => roleAllows(role, permission))

/** The strongest of several roles; undefined for none, which is how an outsider looks. */
export const strongest = (roles: readonly Role[]): Role | undefined => ROLES.find((role) => roles.includes(role))
