import type { ProjectAddress } from '../../services/gateway/project-address.ts'

export const OFFERED = [
  'Management API (v1 and v2)',
  'Storage',
  'Edge Functions',
  'Workers',
  'Postgres for each project',
]

/** Services of the hosted product that have addresses of their own there. */
const MISSING: Record<string, string> = {
  auth: 'Auth (/auth/v1)',
  rest: 'Data API (/rest/v1)',
  graphql: 'GraphQL (/graphql/v1)',
  realtime: 'Realtime (/realtime/v1)',
}
export const NOT_OFFERED = [...Object.values(MISSING), 'Dashboard']

const OF_SERVICE = /^\/(\w+)\/v1(?:\/|$)/

/** Says why there is nothing at an address of a project's services, or of one whose project is not named. */
export function serviceHint(path: string, project: ProjectAddress | undefined, baseUrl: string): string | undefined {
  const [, name = ''] = OF_SERVICE.exec(project?.path ?? path) ?? []
  const missing = MISSING[name]
  if (missing) return `${missing} is not offered by this installation; offered are ${OFFERED.join(', ')}`
  const isOffered = ['storage', 'functions', 'workers'].includes(name)
  return isOffered && !project ? `the services of a project are at ${baseUrl}/p/{ref}` : undefined
}
