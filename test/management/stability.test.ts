import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import { as } from '../support/api.ts'

/** The stability labels of the specification's endpoint tables. */
const SPECIFIED = {
  Alpha: [
    'GET /v2/projects/{ref}/config',
    'GET /v2/projects/{ref}/workers',
    'GET /v2/projects/{ref}/workers/{name}',
    'DELETE /v2/projects/{ref}/workers/{name}',
    'POST /v2/projects/{ref}/workers/{name}/uploads',
    'POST /v2/projects/{ref}/workers/{name}/deploy',
  ],
  Beta: [
    'GET /v1/branches/{branch_id_or_ref}/diff',
    'GET /v1/projects/available-regions',
    'GET /v1/projects/{ref}/network-restrictions',
    'DELETE /v1/projects/{ref}/network-bans',
    'GET /v1/projects/{ref}/upgrade/eligibility',
    'GET /v1/oauth/authorize',
    'POST /v1/oauth/token',
    'POST /v1/oauth/revoke',
    'PUT /v1/projects/{ref}/pgsodium',
    'GET /v1/projects/{ref}/ssl-enforcement',
    'PUT /v1/projects/{ref}/ssl-enforcement',
    'GET /v1/projects/{ref}/database/migrations',
    'PUT /v1/projects/{ref}/database/migrations',
    'PATCH /v1/projects/{ref}/database/migrations/{version}',
    'DELETE /v1/projects/{ref}/database/migrations',
    'POST /v1/projects/{ref}/database/query',
    'POST /v1/projects/{ref}/database/query/read-only',
    'POST /v1/projects/{ref}/read-replicas/setup',
    'POST /v1/projects/{ref}/read-replicas/remove',
    'GET /v1/projects/{ref}/custom-hostname',
    'DELETE /v1/projects/{ref}/custom-hostname',
  ],
  Experimental: [
    'GET /v1/projects/{ref}/database/context',
    'GET /v1/projects/{ref}/advisors/performance',
    'GET /v1/projects/{ref}/advisors/security',
  ],
  deprecated: [
    'GET /v1/projects/{ref}/database/context',
    'POST /v1/projects/{ref}/functions',
    'GET /v1/projects/{ref}/advisors/performance',
    'GET /v1/projects/{ref}/advisors/security',
  ],
}
type Label = keyof typeof SPECIFIED

/** Endpoints that the specification's tables do not list: the newer name of workers, and those of a beta feature. */
const OWN: Partial<Record<Label, string[]>> = {
  Alpha: [
    'GET /v2/projects/{ref}/compute',
    'GET /v2/projects/{ref}/compute/{name}',
    'DELETE /v2/projects/{ref}/compute/{name}',
    'POST /v2/projects/{ref}/compute/{name}/uploads',
    'POST /v2/projects/{ref}/compute/{name}/deploy',
  ],
  Beta: ['GET', 'PUT', 'DELETE'].map((method) => `${method} /v1/organizations/{slug}/oauth/issuer`),
}

interface Operation {
  route: string
  summary: string
  deprecated?: boolean
}
let operations: Operation[]
let schemas: Record<string, { properties: Record<string, { deprecated?: boolean }> }>
beforeAll(async () => {
  const read = async (version: string) =>
    (await as(undefined, { 'x-test-address': randomUUID() }).get(`/api/${version}-json`)).body
  const [v1, v2] = await Promise.all([read('v1'), read('v2')])
  schemas = v1.components.schemas
  const paths = { ...v1.paths, ...v2.paths } as Record<string, Record<string, Omit<Operation, 'route'>>>
  operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ ...operation, route: `${method.toUpperCase()} ${path}` })),
  )
})

const labelled = (label: Label) =>
  operations
    .filter(({ summary, deprecated }) => (label === 'deprecated' ? deprecated : summary.startsWith(`[${label}] `)))
    .map(({ route }) => route)
    .sort()

describe('the published documents', () => {
  it.each(Object.keys(SPECIFIED) as Label[])('have the label %s exactly where the specification has it', (label) => {
    expect(labelled(label)).toEqual([...SPECIFIED[label], ...(OWN[label] ?? [])].sort())
  })

  it('have no other label', () => {
    const others = operations.filter(({ summary }) => /^\[(?!Alpha|Beta|Experimental)/.test(summary))
    expect(others).toEqual([])
  })

  const PROJECT = ['organization_id', 'plan', 'region', 'kps_enabled', 'release_channel', 'postgres_engine']
  it.each([
    ['CreateProject', PROJECT],
    ['UpdateBranch', ['reset_on_push']],
  ])('mark the fields of %s as deprecated that the specification marks', (name, fields) => {
    const properties = Object.entries(schemas[name]?.properties ?? {})
    const marked = properties.filter(([, { deprecated }]) => deprecated).map(([field]) => field)
    expect(marked.sort()).toEqual(fields.toSorted())
  })
})
