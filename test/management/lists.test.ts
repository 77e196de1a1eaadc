import { inArray, sql } from 'drizzle-orm'
import { beforeAll, describe, expect, it } from 'vitest'
import { projects } from '../../src/model/tables/index.ts'
import { randomLetters } from '../../src/platform/http/common-values.ts'
import { control, newOrganization, type TestOrganization, tokenOf, workerLogs } from '../support/api.ts'
import { insertProject } from '../support/webhooks.ts'

const COUNT = 250
const SECOND_MS = 1000
const FIRST = Date.UTC(2026, 0, 1)

let organization: TestOrganization
/**
 * Inserts only rows: lists never read the databases. Several rows share a moment, which a cursor must distinguish.
 */
beforeAll(async () => {
  organization = await newOrganization()
  await control.execute(sql`
    insert into projects (ref, organization_id, name, region, instance_size, status, sealed_password, sealed_runner_password, created_at)
    select translate(lpad(n::text, 3, '0') || substr(md5(${organization.slug} || n), 1, 17), '0123456789', 'ghijklmnop'),
      ${organization.id}, 'Name ' || lpad(n::text, 3, '0') || case when n % 10 = 0 then ' 50%_off' else '' end, 'us-east-1', 'nano',
      case when n % 2 = 0 then 'INACTIVE' else 'ACTIVE_HEALTHY' end, '', '',
      to_timestamp(${FIRST / SECOND_MS}::bigint + n / 5)
    from generate_series(0, ${COUNT - 1}) n`)
})

interface Project {
  ref: string
  name: string
  inserted_at: string
}
const list = (query = '') => organization.owner.get(`/v1/organizations/${organization.slug}/projects?${query}`)
const names = (listed: Project[]) => listed.map(({ name }) => name)

describe('GET /v1/organizations/{slug}/projects', () => {
  it('returns a hundred by name with the total count', async () => {
    const { status, body } = await list()
    expect(status).toBe(200)
    expect(body.pagination).toEqual({ count: COUNT, limit: 100, offset: 0 })
    expect(body.projects).toHaveLength(100)
    expect(body.projects[1]).toEqual({
      ref: expect.stringMatching(/^[a-z]{20}$/),
      name: 'Name 001',
      cloud_provider: 'AWS',
      region: 'us-east-1',
      is_branch: false,
      status: 'ACTIVE_HEALTHY',
      inserted_at: '2026-01-01T00:00:00.000Z',
      databases: [
        {
          infra_compute_size: 'nano',
          region: 'us-east-1',
          status: 'ACTIVE_HEALTHY',
          cloud_provider: 'AWS',
          identifier: body.projects[1].ref,
          type: 'PRIMARY',
          disk_volume_size_gb: 8,
          disk_type: 'gp3',
          disk_throughput_mbps: 125,
        },
      ],
    })
  })

  it.each([
    ['offset=245', ['Name 245', 'Name 246', 'Name 247', 'Name 248', 'Name 249']],
    ['limit=2&sort=name_desc', ['Name 249', 'Name 248']],
    ['limit=1&sort=created_desc&offset=249', [expect.stringMatching(/^Name 00[0-4]/)]],
    ['offset=1000', []],
  ])('pages and sorts by %s', async (query, expected) => {
    expect(names((await list(query)).body.projects)).toEqual(expected)
  })

  it('orders projects of the same name by their refs, as branches may have it', async () => {
    const { id, slug, owner } = await newOrganization()
    const refs = ['c', 'b', 'a'].map((letter) => letter.repeat(4) + randomLetters(16))
    await control.insert(projects).values(
      refs.map((ref, n) => ({
        ...{ ref, organizationId: id, name: 'Same', region: 'us-east-1' as const, instanceSize: 'nano' as const },
        ...{
          status: 'INACTIVE' as const,
          sealedPassword: '',
          sealedRunnerPassword: '',
          parentRef: n > 0 ? refs[0] : null,
        },
      })),
    )
    const sorted = async (sort: string) =>
      (await owner.get(`/v1/organizations/${slug}/projects?sort=${sort}`)).body.projects.map(({ ref }: Project) => ref)
    expect(await sorted('name_asc')).toEqual(refs.toSorted())
    expect(await sorted('name_desc')).toEqual(refs)
  })

  it.each([
    ['RESIZING', 'RESIZING'],
    ['INACTIVE', 'UNKNOWN'],
  ] as const)('shows the database of a project that is %s as %s', async (status, expected) => {
    const { id, slug, owner } = await newOrganization()
    await control.insert(projects).values({
      ...{ ref: randomLetters(20), organizationId: id, name: 'One', region: 'us-east-1', instanceSize: 'nano', status },
      ...{ sealedPassword: '', sealedRunnerPassword: '', createdAt: new Date() },
    })
    const { body } = await owner.get(`/v1/organizations/${slug}/projects`)
    expect(body.projects).toMatchObject([{ status, databases: [{ status: expected }] }])
  })

  it('sorts by age', async () => {
    const dates = (body: { projects: Project[] }) => body.projects.map(({ inserted_at }) => inserted_at)
    const rising = dates((await list('sort=created_asc')).body)
    const falling = dates((await list('sort=created_desc')).body)
    expect(rising).toEqual([...rising].sort())
    expect(falling).toEqual([...falling].sort().reverse())
  })

  it('searches names in any case, and takes % and _ literally', async () => {
    expect((await list('search=name%2007')).body.pagination.count).toBe(10)
    expect((await list(`search=${encodeURIComponent('50%_OFF')}`)).body.pagination.count).toBe(25)
    expect((await list(`search=${encodeURIComponent('%')}&limit=1`)).body.pagination.count).toBe(25)
    expect((await list(`search=${encodeURIComponent('\\')}`)).body.pagination.count).toBe(0)
    expect((await list(`search=${encodeURIComponent("' or true --")}`)).body.projects).toEqual([])
  })

  it('filters by status', async () => {
    expect((await list('statuses=INACTIVE')).body.pagination.count).toBe(125)
    expect((await list('statuses=INACTIVE,%20ACTIVE_HEALTHY')).body.pagination.count).toBe(COUNT)
    expect((await list('statuses=REMOVED')).body.projects).toEqual([])
  })

  it.each(['limit=0', 'limit=101', 'limit=x', 'offset=-1', 'sort=size', 'statuses=SLEEPY'])(
    'refuses %s by name',
    async (query) => {
      const reply = await list(query)
      expect(reply.status).toBe(400)
      expect(reply.body.message).toContain(`query.${query.split('=')[0]}`)
    },
  )
})

describe('GET /v2/organizations/{slug}/projects', () => {
  const walk = async (query: string, link: 'next' | 'prev') => {
    const seen: string[] = []
    let path: string | null = `/v2/organizations/${organization.slug}/projects?${query}`
    let last = ''
    while (path) {
      const { body } = await organization.owner.get(path)
      const refs = body.data.map(({ id }: { id: string }) => id)
      seen.push(...(link === 'next' ? refs : refs.reverse()))
      last = path
      path = body.links[link]
    }
    return { seen, last }
  }

  it.each(['inserted_at', '-inserted_at'])('pages through all of them once in either direction by %s', async (sort) => {
    const there = await walk(`page[size]=60&sort=${sort}`, 'next')
    expect(new Set(there.seen).size).toBe(COUNT)
    const { body } = await organization.owner.get(there.last)
    const back = await walk(there.last.split('?')[1] ?? '', 'prev')
    expect(back.seen).toEqual(there.seen.toReversed())
    expect(body.links.next).toBeNull()
  })

  it('wraps each project as a resource, oldest first', async () => {
    const { body } = await organization.owner.get(`/v2/organizations/${organization.slug}/projects?page[size]=1`)
    expect(body).toEqual({
      data: [
        {
          type: 'project',
          id: expect.stringMatching(/^[a-z]{20}$/),
          attributes: {
            name: expect.stringMatching(/^Name 00\d/),
            status: expect.stringMatching(/INACTIVE|ACTIVE_HEALTHY/),
            cloud_provider: 'AWS',
            region: 'us-east-1',
            inserted_at: '2026-01-01T00:00:00.000Z',
            databases: [expect.objectContaining({ type: 'PRIMARY', region: 'us-east-1' })],
          },
        },
      ],
      links: {
        first: expect.stringContaining('/v2/organizations/'),
        prev: null,
        next: expect.stringContaining('page[after]='),
      },
    })
  })

  it('links back from a page whose projects have been removed since, in either direction', async () => {
    const place = await newOrganization()
    for (let n = 0; n < 3; n++) await insertProject(place)
    const open = async (path: string | null) => {
      const { body } = await place.owner.get(path ?? '')
      return { refs: body.data.map(({ id }: { id: string }) => id), links: body.links }
    }
    const remove = (refs: string[]) =>
      control.update(projects).set({ removedAt: new Date() }).where(inArray(projects.ref, refs))
    const first = await open(`/v2/organizations/${place.slug}/projects?page[size]=1`)
    const second = await open(first.links.next)
    const third = await open(second.links.next)

    await remove(third.refs)
    const beyond = await open(second.links.next)
    expect(beyond).toMatchObject({ refs: [], links: { prev: expect.stringContaining('page[before]='), next: null } })
    expect(await open(beyond.links.prev)).toMatchObject({ refs: first.refs })
    await remove(first.refs)
    const before = await open(second.links.prev)
    expect(before).toMatchObject({ refs: [], links: { prev: null, next: expect.stringContaining('page[after]=') } })
  })

  it('keeps the search over its pages', async () => {
    const { seen } = await walk('page[size]=4&search=NAME%2001', 'next')
    expect(seen).toHaveLength(10)
  })

  it.each([
    'page[size]=0',
    'page[size]=101',
    'page[after]=nonsense',
    'page[before]=%25',
    `page[after]=${btoa('999999999999999 abc')}`,
    'page[size]=0x10',
    'page[after]=',
    'sort=name',
    'search=',
  ])('refuses %s by name', async (query) => {
    const reply = await organization.owner.get(`/v2/organizations/${organization.slug}/projects?${query}`)
    expect(reply.status).toBe(400)
    expect(reply.body.error.issues[0].meta.field).toBe(`query.${query.split('=')[0]}`)
  })

  it('refuses two cursors at once', async () => {
    const reply = await organization.owner.get(
      `/v2/organizations/${organization.slug}/projects?page[after]=a&page[before]=b`,
    )
    expect(reply.status).toBe(400)
  })
})

describe('a hot request', () => {
  it('makes one round trip to the database for the resource, and one for a caller not seen lately', async () => {
    const [{ ref }] = (await list('limit=1')).body.projects
    const caller = await tokenOf(organization.userId)
    const ids = [await caller.get(`/v1/projects/${ref}`), await caller.get(`/v1/projects/${ref}`)].map(({ headers }) =>
      headers.get('x-request-id'),
    )
    const logs = (await workerLogs('"request"')).map((line) => JSON.parse(line))
    const queries = ids.map((id) => logs.find((line) => line.request_id === id)?.queries)
    expect(queries).toEqual([2, 1])
  })
})
