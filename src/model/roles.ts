import { SCOPES, type Scope } from './scopes.ts'

export const ROLES = ['owner', 'administrator', 'developer', 'read-only'] as const
export type Role = (typeof ROLES)[number]

/** Display names in API responses. */
export const ROLE_NAMES: Record<Role, string> = {
  owner: 'Owner',
  administrator: 'Administrator',
  developer: 'Developer',
  'read-only': 'Read-only',
}

const reads = SCOPES.filter((scope) => scope.endsWith(':read'))

/** Permissions of each role, as scopes. A read-only member cannot read secrets: a service key would permit writes. */
const PERMISSIONS: Record<Role, ReadonlySet<Scope>> = {
  owner: new Set(SCOPES),
  administrator: new Set(SCOPES),
  developer: new Set<Scope>([...reads, 'database:write', 'environment:write', 'edge_functions:write']),
  'read-only': new Set<Scope>(reads.filter((scope) => scope !== 'secrets:read')),
}

export const roleAllows = (role: Role, permission: Scope): boolean => PERMISSIONS[role].has(permission)

export const rolesAllowing = (permission: Scope): Role[] => ROLES.filter((role) => roleAllows(role, permission))

/** The role with the most permissions; undefined for a user without a role. */
export const strongestRole = (roles: readonly Role[]): Role | undefined => ROLES.find((role) => roles.includes(role))
