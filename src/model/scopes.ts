/** Scopes that a token may have and an endpoint may require, in the order of the specification. */
export const SCOPES = [
  'environment:read',
  'environment:write',
  'projects:read',
  'projects:write',
  'organizations:read',
  'organizations:write',
  'database:read',
  'database:write',
  'secrets:read',
  'secrets:write',
  'domains:read',
  'domains:write',
  'analytics:read',
  'analytics_config:read',
  'analytics_config:write',
  'auth:read',
  'auth:write',
  'edge_functions:read',
  'edge_functions:write',
  'storage:read',
] as const
export type Scope = (typeof SCOPES)[number]
