import { and, asc, eq } from 'drizzle-orm'
import { beforeAll, describe, expect, it } from 'vitest'
import { COMPUTE_SIZES } from '../../../src/management/projects/addons/schema.ts'
import { auditLog, organizations, projectSettings } from '../../../src/model/tables/index.ts'
import { askHost } from '../../instances.ts'
import {
  type Caller,
  control,
  newApp,
  newMember,
  newOrganization,
  type TestOrganization,
  unhurried,
  workerLogs,
} from '../../support/api.ts'
import { createBranch, untilBranch } from '../../support/branches.ts'
import { createProject, newProject } from '../../support/projects.ts'
import { insertProject } from '../../support/webhooks.ts'

let organization: TestOrganization
let ref: string
let caller: () => Caller
beforeAll(async () => {
  organization = await newOrganization()
  caller = unhurried(organization.owner)
  ref = await newProject(organization)
})

const path = (what: string, project = ref) => `/v1/projects/${project}/${what}`
const traced = async (action: string, project = ref) =>
  (
    await control
      .select()
      .from(auditLog)
      .where(and(eq(auditLog.projectRef, project), eq(auditLog.action, action)))
      .orderBy(asc(auditLog.createdAt))
  ).map(({ actorUserId, detail }) => [actorUserId, detail.fields])

/**
 * For each area: its path, the values of a fresh project, and values of each field at its limits and outside of them.
 */
const AREAS: [string, Record<string, unknown>, Record<string, { accepted: unknown[]; refused: unknown[] }>][] = [
  [
    'postgrest',
    {
      db_schema: 'public,graphql_public',
      max_rows: 1000,
      db_extra_search_path: 'public, extensions',
      db_pool: null,
      db_pool_acquisition_timeout: null,
      db_pool_max_lifetime: null,
      db_pool_max_idletime: null,
    },
    {
      db_schema: {
        accepted: ['', 'public', 'public, private', 'é'.repeat(31), `${'a,'.repeat(2_047)}ab`],
        refused: [null, 5, ',', 'public,', ' ', 'é'.repeat(32), `${'a,'.repeat(2_048)}a`, 'a\0', '\ud800'],
      },
      max_rows: { accepted: [0, 1_000_000], refused: [-1, 1_000_001, 1.5, '7', null] },
      db_extra_search_path: { accepted: ['', 'extensions'], refused: ['a,,b', null] },
      db_pool: { accepted: [0, 1_000], refused: [-1, 1_001, null, '5'] },
      db_pool_acquisition_timeout: { accepted: [0, 60], refused: [-1, 61] },
      db_pool_max_lifetime: { accepted: [0, 3_600], refused: [-1, 3_601] },
      db_pool_max_idletime: { accepted: [0, 60], refused: [-1, 61] },
    },
  ],
  [
    'config/realtime',
    {
      private_only: null,
      connection_pool: null,
      postgres_changes_pool: null,
      max_concurrent_users: null,
      max_events_per_second: null,
      max_bytes_per_second: null,
      max_channels_per_client: null,
      max_joins_per_second: null,
      max_presence_events_per_second: null,
      max_payload_size_in_kb: null,
      suspend: null,
      presence_enabled: false,
      admin_suspended_at: null,
    },
    {
      private_only: { accepted: [true, false], refused: ['true', null, 1] },
      connection_pool: { accepted: [1, 100], refused: [0, 101, null, 1.5] },
      postgres_changes_pool: { accepted: [1, 100], refused: [0, 101] },
      max_concurrent_users: { accepted: [1, 300_000], refused: [0, 300_001] },
      max_events_per_second: { accepted: [1, 50_000], refused: [0, 50_001] },
      max_bytes_per_second: { accepted: [1, 10_000_000], refused: [0, 10_000_001] },
      max_channels_per_client: { accepted: [1, 10_000], refused: [0, 10_001] },
      max_joins_per_second: { accepted: [1, 5_000], refused: [0, 5_001] },
      max_presence_events_per_second: { accepted: [1, 5_000], refused: [0, 5_001] },
      max_payload_size_in_kb: { accepted: [1, 10_000], refused: [0, 10_001] },
      suspend: { accepted: [true, false], refused: [null] },
      presence_enabled: { accepted: [false, true], refused: [null] },
    },
  ],
]

describe.each(AREAS)('/v1/projects/{ref}/%s', (area, defaults, fields) => {
  const read = async (project = ref) => {
    const { jwt_secret: _secret, ...config } = (await caller().get(path(area, project))).body
    return config
  }
  const changedStatus = area === 'postgrest' ? 200 : 204

  it('returns the defaults of a fresh project', async () => {
    expect(await read(await createProject(organization))).toEqual(defaults)
  })

  it.each(Object.entries(fields))('accepts %s within its limits and returns it', async (field, values) => {
    for (const value of values.accepted) {
      const before = await read()
      const reply = await caller().patch(path(area), { [field]: value })
      expect([field, value, reply.status]).toEqual([field, value, changedStatus])
      expect(await read()).toEqual({ ...before, [field]: value })
    }
  })

  it.each(Object.entries(fields))(
    'refuses %s outside its limits by name, with all fields of the request',
    async (field, values) => {
      const before = await read()
      const [other = ''] = Object.keys(fields).filter((name) => name !== field)
      for (const value of values.refused) {
        const reply = await caller().patch(path(area), { [other]: fields[other]?.accepted[0], [field]: value })
        expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining(`body.${field}`) } })
      }
      expect(await read()).toEqual(before)
    },
  )

  it('merges simultaneous changes, and records who changed which fields', async () => {
    const own = await createProject(organization)
    const changes = Object.entries(fields).map(([field, { accepted }]) => ({ [field]: accepted.at(-1) }))
    const replies = await Promise.all(changes.map((change) => caller().patch(path(area, own), change)))
    expect(replies.map(({ status }) => status)).toEqual(changes.map(() => changedStatus))
    expect(await read(own)).toEqual({ ...defaults, ...Object.assign({}, ...changes) })
    const [last = ''] = area.split('/').slice(-1)
    const noted = await traced(`project.${last}.update`, own)
    expect(noted.every(([actor]) => actor === organization.userId)).toBe(true)
    expect(noted.map(([, changed]) => String(changed)).sort()).toEqual(Object.keys(fields).sort())
    expect((await caller().patch(path(area, own), {})).status).toBe(changedStatus)
  })
})

describe('GET /v1/projects/{ref}/postgrest', () => {
  it('shows the JWT secret only to callers who may read secrets', async () => {
    const { body } = await caller().get(path('postgrest'))
    expect(body.jwt_secret).toMatch(/^[\w-]{64}$/)
    const others = [await newMember(organization, 'read-only'), (await newApp(organization, ['database:read'])).caller]
    for (const other of others) {
      const reply = await other.get(path('postgrest'))
      expect(reply.status).toBe(200)
      expect(Object.keys(reply.body)).not.toContain('jwt_secret')
    }
    expect(Object.keys((await caller().patch(path('postgrest'), {})).body)).not.toContain('jwt_secret')
  })
})

interface Key {
  name: string
  type: string
  api_key: string
}

it('gives a branch keys of its own, and the settings of its parent, which the branch can change', async () => {
  const set: [string, Record<string, unknown>][] = [
    ['postgrest', { max_rows: 77 }],
    ['config/realtime', { max_joins_per_second: 77 }],
  ]
  for (const [area, change] of set) await caller().patch(path(area), change)
  const branch = await createBranch(organization.owner, ref)
  await untilBranch(organization.owner, branch, 'FUNCTIONS_DEPLOYED')
  const [keys, own] = await Promise.all(
    [ref, branch.project_ref].map(async (place) => (await caller().get(path('api-keys?reveal=true', place))).body),
  )
  expect(own.map(({ name, type }: Key) => [name, type])).toEqual(keys.map(({ name, type }: Key) => [name, type]))
  expect(new Set([...keys, ...own].map(({ api_key }: Key) => api_key)).size).toBe(8)
  for (const [area, change] of set) {
    const [field = ''] = Object.keys(change)
    expect((await caller().get(path(area, branch.project_ref))).body).toMatchObject(change)
    await caller().patch(path(area, branch.project_ref), { [field]: 78 })
    expect((await caller().get(path(area))).body).toMatchObject(change)
  }
})

describe('POST /v1/projects/{ref}/config/realtime/shutdown', () => {
  it('answers that there is no server to shut down', async () => {
    const reply = await caller().post(path('config/realtime/shutdown'))
    expect(reply).toMatchObject({ status: 404, body: { message: 'No Realtime server runs for this project' } })
  })
})

describe('/v1/projects/{ref}/pgsodium', () => {
  it('makes one key for the first reader, and stores it sealed', async () => {
    const own = await createProject(organization)
    const replies = await Promise.all(Array.from({ length: 6 }, () => caller().get(path('pgsodium', own))))
    const [first] = replies.map(({ body }) => body.root_key)
    expect(first).toMatch(/^[0-9a-f]{64}$/)
    expect(replies.map(({ status, body }) => [status, body])).toEqual(Array(6).fill([200, { root_key: first }]))
    const rows = await control.select().from(projectSettings).where(eq(projectSettings.projectRef, own))
    expect(JSON.stringify(rows)).toContain('sealed_root_key')
    expect(JSON.stringify(rows)).not.toContain(first)
    expect(await traced('project.pgsodium.create', own)).toEqual([[organization.userId, undefined]])
  })

  it('makes no key for a project that is being removed, and says so in the API description', async () => {
    const going = await insertProject(organization, { status: 'GOING_DOWN' })
    const { status, headers } = await caller().get(path('pgsodium', going))
    expect(status).toBe(409)
    const lines = await workerLogs(headers.get('x-request-id') ?? '')
    expect(lines).not.toContainEqual(expect.stringContaining('undeclared_error'))
  })

  it('accepts another key, and records the change', async () => {
    const own = await createProject(organization)
    const key = 'A1'.repeat(32)
    expect(await caller().put(path('pgsodium', own), { root_key: key })).toMatchObject({
      status: 200,
      body: { root_key: key },
    })
    expect((await caller().get(path('pgsodium', own))).body).toEqual({ root_key: key })
    expect(await traced('project.pgsodium.update', own)).toEqual([[organization.userId, ['root_key']]])
  })

  const invalidKey = 'Expected a 32 byte secret, hex-encoded (64 characters).'
  it.each([
    ...['', 'a'.repeat(63), 'a'.repeat(65), 'g'.repeat(64)].map((key) => [key, invalidKey] as const),
    ...[7, null].map((key) => [key, expect.stringContaining('body.root_key')] as const),
  ])('refuses %j, and keeps the key', async (key, message) => {
    const before = (await caller().get(path('pgsodium'))).body
    const reply = await caller().put(path('pgsodium'), { root_key: key })
    expect([reply.status, reply.body]).toEqual([400, { message }])
    expect((await caller().get(path('pgsodium'))).body).toEqual(before)
  })
})

describe('/v1/projects/{ref}/billing/addons', () => {
  const price = { description: 'Free of charge', type: 'fixed', interval: 'monthly', amount: 0 }

  it.each([
    [undefined, []],
    ['small', [{ type: 'compute_instance', variant: { id: 'ci_small', name: 'Small', price } }]],
  ])('returns the size %s, and those that the host offers', async (size, selected) => {
    const host = await askHost<{ sizes: string[] }>('GET', '')
    const offered = COMPUTE_SIZES.filter((each) => host.sizes.includes(each))
    expect(offered).toContain('small')
    const sizes = offered.map((each) => expect.objectContaining({ id: `ci_${each}`, price }))
    const own = await createProject(organization, { ...(size && { desired_instance_size: size }) })
    expect(await caller().get(path('billing/addons', own))).toMatchObject({
      status: 200,
      body: { selected_addons: selected, available_addons: [{ type: 'compute_instance', variants: sizes }] },
    })
  })

  it('accepts the current size, and refuses an unavailable one with the reason', async () => {
    // No task ends its creation.
    const own = await insertProject(organization, { status: 'COMING_UP', instanceSize: 'small' })
    const addons = path('billing/addons', own)
    const before = (await caller().get(addons)).body
    const apply = (addon_variant: string, addon_type: string) => caller().patch(addons, { addon_variant, addon_type })
    expect(await apply('ci_small', 'compute_instance')).toMatchObject({ status: 200, body: '' })
    for (const [variant, type, said] of [
      ['pitr_7', 'pitr', 'the driver host sets how far back a project can be restored'],
      ['cd_default', 'custom_domain', 'custom hostnames need no add-on'],
      ['ipv4_default', 'ipv4', 'no IPv4'],
    ] as const) {
      const reply = await apply(variant, type)
      expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining(said) } })
    }
    for (const [variant, type, field] of [
      ['ci_huge', 'compute_instance', 'body.addon_variant'],
      ['ci_small', 'pitr', 'body.addon_variant'],
      ['ci_small', 'everything', 'body.addon_type'],
    ] as const) {
      const reply = await apply(variant, type)
      expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining(field) } })
    }
    expect((await apply('ci_large', 'compute_instance')).status).toBe(409)
    expect((await caller().delete(`${addons}/ci_small`)).status).toBe(409)
    expect((await caller().delete(`${addons}/${'x'.repeat(65)}`)).body.message).toContain('path.addon_variant: ')
    for (const variant of ['ci_large', 'pitr_7', 'nonsense']) {
      expect((await caller().delete(`${addons}/${variant}`)).status).toBe(404)
    }
    expect((await caller().get(addons)).body).toEqual(before)
  })
})

describe('GET /v1/organizations/{slug}/entitlements', () => {
  const read = async (place: TestOrganization) => {
    const { status, body } = await place.owner.get(`/v1/organizations/${place.slug}/entitlements`)
    expect(status).toBe(200)
    return body.entitlements as {
      feature: { key: string; type: string }
      hasAccess: boolean
      type: string
      config: object
    }[]
  }

  it("returns the installation's entitlements, once each, in the published form", async () => {
    const found = await read(organization)
    expect(found).toHaveLength(64)
    expect(new Set(found.map(({ feature }) => feature.key)).size).toBe(64)
    for (const { feature, type, hasAccess, config } of found) {
      expect(feature.type).toBe(type)
      expect(config).toMatchObject({ enabled: hasAccess })
      expect(Object.keys(config).sort().join()).toBe(
        { boolean: 'enabled', numeric: 'enabled,unit,unlimited,value', set: 'enabled,set' }[type],
      )
    }
    const byKey = new Map(found.map(({ feature, config }) => [feature.key, config]))
    expect(byKey.get('security.member_roles')).toMatchObject({
      set: ['Owner', 'Administrator', 'Developer', 'Read-only'],
    })
    expect(found.filter(({ feature, hasAccess }) => /^(auth|realtime)\./.test(feature.key) && hasAccess)).toEqual([])
    // Only the size of a disk can be changed.
    expect(byKey.get('instances.disk_modifications')).toEqual({ enabled: false })
    expect(byKey.get('pitr.available_variants')).toEqual({ enabled: false, set: [] })
    expect(byKey.get('branching_limit')).toEqual({ enabled: true, value: 0, unlimited: true, unit: 'branches' })
  })

  it.each([
    ['free', { enabled: true, value: 100, unlimited: false, unit: 'functions' }, false],
    ['pro', { enabled: true, value: 500, unlimited: false, unit: 'functions' }, true],
    ['enterprise', { enabled: true, value: 0, unlimited: true, unit: 'functions' }, true],
  ] as const)('depends on the plan %s', async (plan, functions, branches) => {
    const place = await newOrganization()
    await control.update(organizations).set({ plan }).where(eq(organizations.id, place.id))
    const byKey = new Map((await read(place)).map((one) => [one.feature.key, one]))
    expect(byKey.get('function.max_count')?.config).toEqual(functions)
    expect(byKey.get('branching_limit')?.hasAccess).toBe(branches)
    expect(byKey.get('branching_persistent')?.hasAccess).toBe(branches)
    expect(byKey.get('log_drains')?.hasAccess).toBe(plan !== 'free')
    for (const key of ['api.members.invitations', 'api.members.roles']) {
      expect(byKey.get(key)?.hasAccess).toBe(plan === 'enterprise')
    }
  })
})
