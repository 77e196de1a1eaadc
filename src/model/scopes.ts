/** The scopes that a token may carry and an endpoint may need, as the specification lists them. */
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
