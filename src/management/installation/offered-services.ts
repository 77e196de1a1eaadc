import type { ProjectAddress } from '../../services/gateway/project-address.ts'

export const OFFERED = [
  'Management API (v1 and v2)',
  'Data API',
  'Storage',
  'Edge Functions',
  'Workers',
  'Postgres for each project',
]

/** Services of the hosted product that this installation does not have. */
const MISSING: Record<string, string> = {
  auth: 'Auth (/auth/v1)',
  graphql: 'GraphQL (/graphql/v1)',
  realtime: 'Realtime (/realtime/v1)',
}
export const NOT_OFFERED = [...Object.values(MISSING), 'Dashboard']

const SERVICE_PATH = /^\/(\w+)\/v1(?:\/|$)/

/** Explains a 404: the service is not offered, or the path does not name the project. */
export function serviceHint(path: string, project: ProjectAddress | undefined, baseUrl: string): string | undefined {
  const [, name = ''] = SERVICE_PATH.exec(project?.path ?? path) ?? []
  const missing = MISSING[name]
  if (missing) return `${missing} is not offered by this installation; offered are ${OFFERED.join(', ')}`
  const isOffered = ['rest', 'storage', 'functions', 'workers'].includes(name)
  return isOffered && !project ? `the services of a project are at ${baseUrl}/p/{ref}` : undefined
}
