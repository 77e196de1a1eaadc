import { randomUUID } from 'node:crypto'
import { eq, sql } from 'drizzle-orm'
import { drizzle } from 'drizzle-orm/node-postgres'
import pg from 'pg'
import { beforeAll, describe, expect, inject, it } from 'vitest'
import type { Ctx } from '../../../src/ctx.ts'
import { listSnippets } from '../../../src/management/database/snippets/list-snippets.ts'
import { SnippetListQuery } from '../../../src/management/database/snippets/schema.ts'
import { auditLog, snippets, users } from '../../../src/model/tables/index.ts'
import {
  addMember,
  type Caller,
  control,
  newApp,
  newMember,
  newOrganization,
  newUser,
  type TestOrganization,
  tokenOf,
} from '../../support/api.ts'
import { cliOf } from '../../support/cli.ts'
import { extended } from '../../support/extended.ts'
import { rowsRead } from '../../support/plans.ts'
import { createProject, newProject, untilGone } from '../../support/projects.ts'

const save = async (caller: Caller, ref: string, fields: Record<string, unknown> = {}) => {
  const reply = await caller.post('/v1/snippets', { project_ref: ref, name: 'Users', sql: 'select 1', ...fields })
  expect(reply).toMatchObject({ status: 201 })
  return reply.body.id as string
}
interface Listed {
  id: string
  name: string
}
const list = async (caller: Caller, query = '') => {
  const reply = await caller.get(`/v1/snippets?${query}`)
  expect(reply).toMatchObject({ status: 200 })
  return reply.body as { data: Listed[]; cursor?: string }
}
const ids = async (caller: Caller, query = '') => (await list(caller, query)).data.map(({ id }) => id).sort()

let organization: TestOrganization
let ref: string
beforeAll(async () => {
  organization = await newOrganization()
  ref = await createProject(organization)
})

const personOf = async (userId: string) => {
  const [row] = await control.select().from(users).where(eq(users.id, userId))
  return { id: row?.number, username: row?.username }
}

describe('POST /v1/snippets', () => {
  it('saves a snippet that only its owner sees', async () => {
    const { owner, userId } = organization
    const created = await owner.post('/v1/snippets', { project_ref: ref, name: 'Users', sql: 'select * from users' })
    const project = (await owner.patch(`/v1/projects/${ref}`, { name: `named-${randomUUID()}` })).body
    const person = await personOf(userId)
    const now = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
    const listed = {
      id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      inserted_at: now,
      updated_at: now,
      type: 'sql',
      visibility: 'user',
      name: 'Users',
      description: null,
      project: { id: project.id, name: project.name },
      owner: person,
      updated_by: person,
      favorite: false,
    }
    const content = { favorite: false, schema_version: '1.0', sql: 'select * from users' }
    expect(created.status).toBe(201)
    expect(created.body).toEqual({ ...listed, project: { id: project.id, name: expect.anything() }, content })
    expect((await owner.get(`/v1/snippets/${created.body.id}`)).body).toEqual({ ...listed, content })
    const { data } = await list(owner, `project_ref=${ref}`)
    expect(data.find(({ id }) => id === created.body.id)).toEqual(listed)
    const audited = await control.select().from(auditLog).where(eq(auditLog.projectRef, ref))
    expect(audited).toContainEqual(
      expect.objectContaining({
        action: 'snippet.create',
        actorUserId: userId,
        detail: { snippet: created.body.id, visibility: 'user' },
      }),
    )
  })

  it('accepts a description, a visibility and the favorite mark', async () => {
    const { owner } = organization
    const fields = { description: 'd', visibility: 'org', favorite: true }
    const id = await save(owner, ref, fields)
    expect((await owner.get(`/v1/snippets/${id}`)).body).toMatchObject({ ...fields, content: { favorite: true } })
  })

  it.each([
    [{ name: '' }, 'body.name'],
    [{ name: 'x'.repeat(257) }, 'body.name'],
    [{ sql: undefined }, 'body.sql'],
    [{ sql: 1 }, 'body.sql'],
    [{ sql: 'x'.repeat(262_145) }, 'body.sql'],
    [{ description: 'x'.repeat(1025) }, 'body.description'],
    [{ visibility: 'world' }, 'body.visibility'],
    [{ favorite: 'yes' }, 'body.favorite'],
    [{ project_ref: 'x' }, 'body.project_ref'],
  ])('refuses %j and names the field', async (fields, field) => {
    const reply = await organization.owner.post('/v1/snippets', {
      project_ref: ref,
      name: 'n',
      sql: 's',
      ...fields,
    })
    expect(reply.status).toBe(400)
    expect(reply.body.message).toContain(field)
  })

  it('accepts a thousand for each owner in a project', async () => {
    const project = await createProject(organization)
    const [other] = await Promise.all([newMember(organization, 'developer')])
    await control.insert(snippets).values(
      Array.from({ length: 998 }, () => ({
        ...{ projectRef: project, organizationId: organization.id, ownerId: organization.userId },
        ...{ updatedById: organization.userId, name: 'n', sql: 's', visibility: 'user' as const },
        ...{ insertedAt: new Date(), updatedAt: new Date() },
      })),
    )
    const body = { project_ref: project, name: 'n', sql: 's' }
    const full = { status: 422, body: { message: expect.stringContaining('at most 1000') } }
    const replies = await Promise.all(Array.from({ length: 6 }, () => organization.owner.post('/v1/snippets', body)))
    expect(replies.map(({ status }) => status).sort()).toEqual([201, 201, 422, 422, 422, 422])
    expect(await organization.owner.post('/v1/snippets', body)).toMatchObject(full)
    expect((await other?.post('/v1/snippets', body))?.status).toBe(201)
  })

  it('is refused for a read-only member, and others do not see the project', async () => {
    const body = { project_ref: ref, name: 'n', sql: 's' }
    expect((await (await newMember(organization, 'read-only')).post('/v1/snippets', body)).status).toBe(403)
    expect((await (await tokenOf(await newUser())).post('/v1/snippets', body)).status).toBe(404)
    const missing = { ...body, project_ref: 'abcdefghijklmnopqrst' }
    expect((await organization.owner.post('/v1/snippets', missing)).status).toBe(404)
  })
})

describe('the visibility of a snippet', () => {
  let place: TestOrganization
  let [first, second] = ['', '']
  const snippets: Record<string, string> = {}
  beforeAll(async () => {
    place = await newOrganization()
    first = await createProject(place)
    second = await createProject(place)
    for (const visibility of ['user', 'project', 'org', 'public'])
      snippets[visibility] = await save(place.owner, first, { visibility, name: visibility })
  })

  const seenBy = async (caller: Caller) => {
    const found: string[] = []
    for (const [visibility, id] of Object.entries(snippets)) {
      const { status } = await caller.get(`/v1/snippets/${id}`)
      if (status === 200) found.push(visibility)
      else expect(status).toBe(404)
    }
    return found
  }
  const listedFor = async (caller: Caller, query = '') =>
    (await list(caller, `sort_by=name&${query}`)).data.map(({ name }) => name)

  it.each([
    ['its owner', () => place.owner, ['user', 'project', 'org', 'public']],
    ['a member', () => newMember(place, 'read-only'), ['project', 'org', 'public']],
    ['a member of its project alone', () => newMember(place, 'developer', first), ['project', 'org', 'public']],
    ['a member of another project alone', () => newMember(place, 'owner', second), ['org', 'public']],
  ] as const)('shows %s the permitted snippets, one by one and in the list', async (_who, make, expected) => {
    const caller = await make()
    expect(await seenBy(caller)).toEqual(expected)
    expect(await listedFor(caller)).toEqual([...expected].sort())
  })

  it('shows the same in the list of the project to everybody who sees the project', async () => {
    const member = await newMember(place, 'developer', first)
    expect(await listedFor(place.owner, `project_ref=${first}`)).toEqual(['org', 'project', 'public', 'user'])
    expect(await listedFor(member, `project_ref=${first}`)).toEqual(['org', 'project', 'public'])
    expect(await listedFor(place.owner, `project_ref=${second}`)).toEqual([])
    const elsewhere = await newMember(place, 'owner', second)
    expect((await elsewhere.get(`/v1/snippets?project_ref=${first}`)).status).toBe(404)
  })

  it('shows strangers public snippets, only by id', async () => {
    const stranger = await tokenOf(await newUser())
    expect(await seenBy(stranger)).toEqual(['public'])
    expect(await listedFor(stranger)).toEqual([])
    expect((await stranger.get(`/v1/snippets?project_ref=${first}`)).status).toBe(404)
    expect((await stranger.patch(`/v1/snippets/${snippets.public}`, { favorite: true })).status).toBe(404)
    expect((await stranger.delete(`/v1/snippets/${snippets.public}`)).status).toBe(404)
  })

  it('shows an application the snippets of its organization, whoever its user is', async () => {
    const other = await newOrganization()
    await addMember(other.id, place.userId, 'owner')
    const { caller } = await newApp({ ...other, userId: place.userId }, ['database:read'])
    expect(await seenBy(caller)).toEqual(['public'])
    expect(await listedFor(caller)).toEqual([])
  })

  it("hides a user's own snippets after the user has left the project", async () => {
    const userId = await newUser()
    await addMember(place.id, userId, 'developer')
    const caller = await tokenOf(userId)
    const id = await save(caller, first)
    await control.execute(sql`delete from member_roles where user_id = ${userId}`)
    expect((await caller.get(`/v1/snippets/${id}`)).status).toBe(404)
    expect(await ids(caller)).toEqual([])
  })

  it('answers 404 for an unknown id and 400 for an invalid one', async () => {
    const missing = await place.owner.get(`/v1/snippets/${randomUUID()}`)
    expect(missing).toMatchObject({ status: 404, body: { message: 'Snippet not found' } })
    expect((await place.owner.get('/v1/snippets/x')).status).toBe(400)
  })
})

describe('PATCH and DELETE /v1/snippets/{id}', () => {
  it('changes the given fields, and records who changed them', async () => {
    const { owner } = organization
    const userId = await newUser()
    await addMember(organization.id, userId, 'administrator')
    const administrator = await tokenOf(userId)
    const id = await save(owner, ref, { visibility: 'project', description: 'old' })
    const before = (await owner.get(`/v1/snippets/${id}`)).body
    const later = administrator.at(new Date(Date.now() + 60_000))
    const changed = await later.patch(`/v1/snippets/${id}`, { name: 'New', sql: 'select 2', description: null })
    expect(changed.status).toBe(200)
    expect(changed.body).toEqual({
      ...before,
      name: 'New',
      description: null,
      updated_at: changed.body.updated_at,
      updated_by: await personOf(userId),
      content: { ...before.content, sql: 'select 2' },
    })
    expect(changed.body.updated_at > before.updated_at).toBe(true)
    expect((await owner.patch(`/v1/snippets/${id}`, {})).body).toEqual(changed.body)
    expect((await administrator.delete(`/v1/snippets/${id}`)).status).toBe(200)
    expect((await owner.get(`/v1/snippets/${id}`)).status).toBe(404)
    expect((await owner.delete(`/v1/snippets/${id}`)).status).toBe(404)
  })

  it('lets only the owner and administrators change a snippet, and every member the own favorite mark', async () => {
    const id = await save(organization.owner, ref, { visibility: 'project' })
    const developer = await newMember(organization, 'developer')
    const before = (await developer.get(`/v1/snippets/${id}`)).body
    for (const change of [{ name: 'x' }, { favorite: true, sql: 'x' }, { visibility: 'user' }])
      expect((await developer.patch(`/v1/snippets/${id}`, change)).status).toBe(403)
    expect((await developer.delete(`/v1/snippets/${id}`)).status).toBe(403)
    expect((await developer.get(`/v1/snippets/${id}`)).body).toEqual(before)
    const marked = await developer.patch(`/v1/snippets/${id}`, { favorite: true })
    expect(marked.body).toEqual({ ...before, favorite: true, content: { ...before.content, favorite: true } })
    expect((await organization.owner.get(`/v1/snippets/${id}`)).body).toEqual(before)
    expect((await developer.patch(`/v1/snippets/${id}`, { favorite: false })).body).toEqual(before)
    const reader = await newMember(organization, 'read-only')
    expect((await reader.patch(`/v1/snippets/${id}`, { favorite: true })).status).toBe(403)
    const administrator = await newMember(organization, 'administrator')
    const hidden = await administrator.patch(`/v1/snippets/${id}`, { visibility: 'user' })
    expect(hidden).toMatchObject({ status: 400, body: { message: expect.stringContaining('body.visibility') } })
    expect((await organization.owner.get(`/v1/snippets/${id}`)).body).toEqual(before)
  })

  it('finds no private snippet of another user, whatever the role', async () => {
    const developer = await newMember(organization, 'developer')
    const id = await save(developer, ref)
    expect((await organization.owner.patch(`/v1/snippets/${id}`, { name: 'x' })).status).toBe(404)
    expect((await organization.owner.delete(`/v1/snippets/${id}`)).status).toBe(404)
    expect((await developer.get(`/v1/snippets/${id}`)).body.name).toBe('Users')
  })

  it('refuses invalid fields and changes nothing', async () => {
    const id = await save(organization.owner, ref)
    const reply = await organization.owner.patch(`/v1/snippets/${id}`, { sql: 'x', name: '' })
    expect(reply.status).toBe(400)
    expect(reply.body.message).toContain('body.name')
    expect((await organization.owner.get(`/v1/snippets/${id}`)).body.content.sql).toBe('select 1')
  })
})

describe('GET /v1/snippets', () => {
  let place: TestOrganization
  let project: string
  const names: string[] = []
  const all: string[] = []
  beforeAll(async () => {
    place = await newOrganization()
    project = await createProject(place)
    const visibilities = ['user', 'project', 'org', 'public']
    for (let n = 0; n < 10; n++) {
      const name = `${String.fromCharCode(65 + ((n * 7) % 10))} ü ${n}`
      // Two snippets have the same moment, with all visibilities: a page mixes them and the cursor distinguishes
      // them.
      const at = place.owner.at(new Date(Date.UTC(2030, 0, 1, 0, n >> 1)))
      all.push(await save(at, project, { name, visibility: visibilities[n % 4] }))
      names.push(name)
    }
  })

  it.each([
    ['sort_by=name', () => [...names].sort()],
    ['sort_by=name&sort_order=desc', () => [...names].sort().reverse()],
  ])('pages by %s without a gap or a repetition', async (query, expected) => {
    for (const where of ['', `&project_ref=${project}`]) {
      const found: string[] = []
      for (let cursor: string | undefined = ''; cursor !== undefined; ) {
        const page = await list(
          place.owner,
          `${query}${where}&limit=3${cursor && `&cursor=${encodeURIComponent(cursor)}`}`,
        )
        found.push(...page.data.map(({ name }) => name))
        cursor = page.cursor
      }
      expect(found).toEqual(expected())
    }
  })

  it.each(['asc', 'desc'])('pages by time, %s', async (order) => {
    const whole = (await list(place.owner, `sort_order=${order}`)).data as (Listed & { inserted_at: string })[]
    const keys = whole.map(({ inserted_at, id }) => `${inserted_at} ${id}`)
    expect(keys).toEqual(order === 'asc' ? [...keys].sort() : [...keys].sort().reverse())
    expect(whole.map(({ id }) => id).sort()).toEqual([...all].sort())
    const found: string[] = []
    for (let cursor: string | undefined = ''; cursor !== undefined; ) {
      const page = await list(place.owner, `sort_order=${order}&limit=4${cursor && `&cursor=${cursor}`}`)
      found.push(...page.data.map(({ id }) => id))
      cursor = page.cursor
    }
    expect(found).toEqual(whole.map(({ id }) => id))
  })

  it('starts with the latest, and returns no cursor with the last page', async () => {
    const { data, cursor } = await list(place.owner)
    expect(cursor).toBeUndefined()
    expect(data).toEqual((await list(place.owner, 'sort_order=desc&sort_by=inserted_at&limit=10')).data)
    expect((await list(place.owner, 'limit=10')).cursor).toBeUndefined()
  })

  it.each([
    ['limit=0', 'query.limit'],
    ['limit=101', 'query.limit'],
    ['limit=x', 'query.limit'],
    ['sort_by=id', 'query.sort_by'],
    ['sort_order=up', 'query.sort_order'],
    ['project_ref=X', 'query.project_ref'],
    ['cursor=x', 'query.cursor'],
    ['cursor=', 'query.cursor'],
    [`cursor=${btoa('1 x')}`, 'query.cursor'],
    [`sort_by=name&cursor=${btoa(`name %E0%A4%A ${randomUUID()}`)}`, 'query.cursor'],
    [`sort_by=name&cursor=${btoa(`name %00 ${randomUUID()}`)}`, 'query.cursor'],
    [`sort_by=name&cursor=${btoa(`1 ${randomUUID()}`)}`, 'query.cursor'],
    [`cursor=${btoa(`name a ${randomUUID()}`)}`, 'query.cursor'],
  ])('refuses %s and names the parameter', async (query, parameter) => {
    const reply = await place.owner.get(`/v1/snippets?${query}`)
    expect(reply.status).toBe(400)
    expect(reply.body.message).toContain(parameter)
  })
})

describe('a removed project', () => {
  it('deletes its snippets', async () => {
    const place = await newOrganization()
    const gone = await newProject(place)
    const id = await save(place.owner, gone, { visibility: 'public' })
    await place.owner.delete(`/v1/projects/${gone}`)
    await untilGone(place.owner, gone)
    expect((await place.owner.get(`/v1/snippets/${id}`)).status).toBe(404)
    expect(await ids(place.owner)).toEqual([])
  })
})

describe('the supabase CLI', () => {
  extended('runs snippets list and snippets download', async () => {
    const place = await newOrganization()
    const project = await createProject(place)
    const id = await save(place.owner, project, { name: 'From the CLI', sql: 'select 42' })
    const cli = cliOf(place.owner)
    const listed = await cli('snippets', 'list', `--remote=${project}`)
    expect(listed).toContain(id)
    expect(listed).toContain('From the CLI')
    expect(await cli('snippets', 'download', id, `--remote=${project}`)).toContain('select 42')
  })
})

extended('lists a page without reading 100,000 snippets', async () => {
  const url = new URL(inject('adminUrl'))
  url.pathname = '/pilothouse'
  const client = new pg.Client({ connectionString: url.href, options: '-c search_path=public' })
  await client.connect()
  const { id, userId, slug } = await newOrganization()
  const other = await newUser()
  await client.query(`begin; set local session_replication_role = replica;
    insert into projects (ref, organization_id, name, region, instance_size, status, sealed_password, sealed_runner_password)
      select translate(substr(md5('${slug}' || n), 1, 20), '0123456789', 'ghijklmnop'), '${id}', n, 'us-east-1', 'nano', 'ACTIVE_HEALTHY', '', ''
        from generate_series(1, 2) n;
    insert into projects (ref, organization_id, name, region, instance_size, status, sealed_password, sealed_runner_password)
      select translate(substr(md5('${other}' || n), 1, 20), '0123456789', 'ghijklmnop'), md5('${other}' || n / 4)::uuid, n, 'us-east-1', 'nano', 'ACTIVE_HEALTHY', '', ''
        from generate_series(1, 20000) n;
    insert into member_roles (user_id, organization_id, role)
      select md5(n::text)::uuid, md5('${other}' || n)::uuid, 'owner' from generate_series(1, 5000) n;
    insert into snippets (project_ref, organization_id, owner_id, visibility, name, sql, inserted_at, updated_at)
      select ref, '${id}', owner, visibility, 'snippet ' || n, '', now() + n * interval '1 second', now()
        from projects, generate_series(1, 10000) n, unnest(array['${userId}', '${other}']::uuid[]) owner,
          unnest(array['user', 'project', 'org']) visibility where organization_id = '${id}';
    analyze snippets; analyze projects; analyze member_roles`)
  const statements: [string, unknown[]][] = []
  const db = drizzle(client, { logger: { logQuery: (text, params) => statements.push([text, params]) } })
  const ctx = { db, actor: { userId, scopes: [] } } as unknown as Ctx
  const { rows } = await client.query(`select ref from projects where organization_id = '${id}' limit 1`)
  for (const where of [{}, { project_ref: rows[0].ref }]) {
    for (const sort_by of ['name', 'inserted_at'] as const) {
      const query = SnippetListQuery.parse({ ...where, sort_by, limit: '20' })
      const { data, cursor } = await listSnippets(ctx, query)
      expect(data).toHaveLength(20)
      expect((await listSnippets(ctx, { ...query, cursor })).data).toHaveLength(20)
      const [text, params] = statements.at(-1) ?? ['', []]
      const explained = await client.query(`explain (analyze, format json) ${text}`, params)
      const read = rowsRead(explained.rows[0]['QUERY PLAN'][0].Plan, 'snippets')
      expect(read).toBeGreaterThanOrEqual(21)
      expect(read).toBeLessThan(500)
    }
  }
  await client.query('rollback')
  await client.end()
})
