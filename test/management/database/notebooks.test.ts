import { randomUUID } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { eq, sql } from 'drizzle-orm'
import { drizzle } from 'drizzle-orm/node-postgres'
import pg from 'pg'
import { beforeAll, describe, expect, inject, it, onTestFinished } from 'vitest'
import type { ProjectAccess } from '../../../src/access/access.ts'
import type { Ctx } from '../../../src/ctx.ts'
import { listNotebooks } from '../../../src/management/database/notebooks/list-notebooks.ts'
import { NotebookListQuery } from '../../../src/management/database/notebooks/schema.ts'
import { auditLog, notebooks, users } from '../../../src/model/tables/index.ts'
import {
  addMember,
  type Caller,
  control,
  newMember,
  newOrganization,
  newUser,
  type TestOrganization,
  tokenOf,
  unhurried,
} from '../../support/api.ts'
import { newCli } from '../../support/cli.ts'
import { extended } from '../../support/extended.ts'
import { rowsRead } from '../../support/plans.ts'
import { createProject, newProject, untilGone } from '../../support/projects.ts'

const pathOf = (ref: string, id?: string) => `/v2/projects/${ref}/notebooks${id ? `/${id}` : ''}`
const bodyOf = (attributes: unknown) => ({ data: { type: 'notebook', attributes } })
const TEXT = { type: 'markdown', text: '# Sales' }
const EMPTY = { name: 'n', content: { cells: [] } }

const save = async (caller: Caller, ref: string, attributes: Record<string, unknown> = {}): Promise<string> => {
  const reply = await caller.post(pathOf(ref), bodyOf({ ...EMPTY, ...attributes }))
  expect(reply).toMatchObject({ status: 201 })
  return reply.body.data.id
}
interface Listed {
  id: string
  attributes: { name: string; inserted_at: string }
}
interface Page {
  data: Listed[]
  links: { first: string; prev: string | null; next: string | null }
}
const open = async (caller: Caller, path: string): Promise<Page> => {
  const reply = await caller.get(path)
  expect(reply).toMatchObject({ status: 200 })
  return reply.body
}
const namesOf = ({ data }: Page) => data.map(({ attributes }) => attributes.name)

const personOf = async (userId: string) => {
  const [row] = await control.select().from(users).where(eq(users.id, userId))
  return { id: row?.number, username: row?.username }
}

let organization: TestOrganization
let ref: string
let owner: () => Caller
beforeAll(async () => {
  organization = await newOrganization()
  ref = await createProject(organization)
  owner = unhurried(organization.owner)
})

const CHART = {
  type: 'bar',
  x_column: 'day',
  y_series: [{ column: 'total' }],
  scale: 'linear',
  cumulative: false,
  show_labels: true,
}
const QUERY = { type: 'database', sql: 'select 1' }
const LOG = { type: 'log', sql: 'select 1', time_range: { type: 'relative', unit: 'hour', amount: 2 } }

describe('POST /v2/projects/{ref}/notebooks', () => {
  it('saves a notebook for everybody who sees the project', async () => {
    const { userId } = organization
    const cells = [
      { id: 'one', ...TEXT },
      { id: 'two', ...QUERY, row_limit: 7, database_identifier: ref, title: 'T', view: 'chart', chart: CHART },
      { id: 'three', ...LOG, time_range: { type: 'absolute', start: '2026-01-01', end: '2026-02-01' } },
    ]
    const attributes = { name: 'Sales', description: 'Of the year', favorite: true, content: { cells } }
    const created = await organization.owner.post(pathOf(ref), bodyOf(attributes))
    const now = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
    const person = await personOf(userId)
    const listed = {
      ...{ name: 'Sales', description: 'Of the year', favorite: true },
      ...{ inserted_at: now, updated_at: now, owner: person, updated_by: person },
    }
    const { id } = created.body.data
    expect(created.status).toBe(201)
    expect(created.body).toEqual({
      data: {
        type: 'notebook',
        id: expect.stringMatching(/^[0-9a-f-]{36}$/),
        attributes: { ...listed, content: { schema_version: 1, cells } },
      },
    })
    expect((await owner().get(pathOf(ref, id))).body).toEqual(created.body)
    const reader = await newMember(organization, 'read-only')
    const theirs = (await open(reader, pathOf(ref))).data.find((one) => one.id === id)
    expect(theirs).toEqual({ type: 'notebook', id, attributes: { ...listed, favorite: false } })
    const audited = await control.select().from(auditLog).where(eq(auditLog.projectRef, ref))
    expect(audited).toContainEqual(
      expect.objectContaining({ action: 'notebook.create', actorUserId: userId, detail: { notebook: id } }),
    )
  })

  it('fills in optional fields of cells, and leaves out those that they do not have', async () => {
    const cells = [{ ...TEXT, more: 1 }, QUERY, LOG]
    const id = await save(organization.owner, ref, { content: { cells } })
    const { attributes } = (await owner().get(pathOf(ref, id))).body.data
    const made = expect.stringMatching(/^[0-9a-f-]{36}$/)
    expect(attributes).toMatchObject({ description: null, favorite: false })
    expect(attributes.content.cells).toEqual([
      { id: made, ...TEXT },
      { id: made, ...QUERY, row_limit: 100 },
      { id: made, ...LOG },
    ])
    expect(new Set(attributes.content.cells.map((cell: { id: string }) => cell.id)).size).toBe(3)
  })

  const withCell = (cell: unknown) => ({ content: { cells: [cell] } })
  const withChart = (change: Record<string, unknown>) => withCell({ ...QUERY, chart: { ...CHART, ...change } })
  it.each([
    ['name', { name: '' }],
    ['name', { name: ' ' }],
    ['name', { name: 'x'.repeat(256) }],
    ['name', { name: undefined }],
    ['name', { name: 'a\0' }],
    ['description', { description: 'x'.repeat(10_001) }],
    ['favorite', { favorite: 'yes' }],
    ['content', { content: undefined }],
    ['content.cells', { content: {} }],
    ['content.cells', { content: { cells: Array.from({ length: 1_001 }, () => TEXT) } }],
    ['content.cells', withCell({ ...TEXT, text: 'x'.repeat(262_144) })],
    // Too long with the ids that are generated for them and returned with them.
    ['content.cells', { content: { cells: Array(1_000).fill({ ...TEXT, text: 'x'.repeat(200) }) } }],
    ['content.cells.0.type', withCell({ ...TEXT, type: 'image' })],
    ['content.cells.0.text', withCell({ type: 'markdown' })],
    ['content.cells.0.text', withCell({ ...TEXT, text: 'a\0' })],
    ['content.cells.0.id', withCell({ ...TEXT, id: '' })],
    ['content.cells.0.sql', withCell({ type: 'database' })],
    ['content.cells.0.row_limit', withCell({ ...QUERY, row_limit: 0 })],
    ['content.cells.0.database_identifier', withCell({ ...QUERY, database_identifier: 1 })],
    ['content.cells.0.title', withCell({ ...QUERY, title: 1 })],
    ['content.cells.0.view', withCell({ ...QUERY, view: 'map' })],
    ['content.cells.0.chart.type', withChart({ type: 'pie' })],
    ['content.cells.0.chart.x_column', withChart({ x_column: undefined })],
    ['content.cells.0.chart.y_series', withChart({ y_series: Array(4).fill({ column: 'c' }) })],
    ['content.cells.0.chart.scale', withChart({ scale: 'cubic' })],
    ['content.cells.0.chart.cumulative', withChart({ cumulative: 1 })],
    ['content.cells.0.chart.show_labels', withChart({ show_labels: 1 })],
    ['content.cells.0.time_range', withCell({ ...LOG, time_range: undefined })],
    ['content.cells.0.time_range.end', withCell({ ...LOG, time_range: { type: 'absolute', start: 'x' } })],
    ['content.cells.0.time_range.unit', withCell({ ...LOG, time_range: { ...LOG.time_range, unit: 'eon' } })],
    ['content.cells.0.time_range.amount', withCell({ ...LOG, time_range: { ...LOG.time_range, amount: 0 } })],
  ])('refuses an invalid %s and names it', async (field, attributes) => {
    const reply = await owner().post(pathOf(ref), bodyOf({ ...EMPTY, ...attributes }))
    expect(reply.status).toBe(400)
    expect(reply.body.error.issues[0].meta.field).toBe(`body.data.attributes.${field}`)
  })

  it('refuses an invalid notebook', async () => {
    const reply = await owner().post(pathOf(ref), { data: { type: 'snippet', attributes: EMPTY } })
    expect(reply).toMatchObject({ status: 400, body: { error: { issues: [{ meta: { field: 'body.data.type' } }] } } })
  })

  it('accepts a thousand in a project', async () => {
    const project = await createProject(organization)
    const at = new Date()
    const row = { projectRef: project, name: 'n', cells: [], insertedAt: at, updatedAt: at }
    await control.insert(notebooks).values(Array.from({ length: 999 }, () => row))
    await save(organization.owner, project)
    const reply = await owner().post(pathOf(project), bodyOf(EMPTY))
    expect(reply).toMatchObject({
      status: 422,
      body: { error: { code: 'unprocessable.too_many_notebooks', description: 'a project can have at most 1000' } },
    })
    await save(organization.owner, ref)
  })
})

describe('PATCH and DELETE /v2/projects/{ref}/notebooks/{id}', () => {
  it('changes the given fields, and records who changed them', async () => {
    const userId = await newUser()
    await addMember(organization.id, userId, 'developer')
    const developer = await tokenOf(userId)
    const id = await save(organization.owner, ref, { description: 'old', content: { cells: [{ id: 'a', ...TEXT }] } })
    const before = (await owner().get(pathOf(ref, id))).body.data
    const later = developer.at(new Date(Date.parse(before.attributes.updated_at) + 60_000))
    const changed = await later.patch(pathOf(ref, id), bodyOf({ name: 'New' }))
    const { updated_at } = changed.body.data.attributes
    const expected = { ...before.attributes, name: 'New', updated_at, updated_by: await personOf(userId) }
    expect(changed.status).toBe(200)
    expect(changed.body.data).toEqual({ ...before, attributes: expected })
    expect(updated_at > before.attributes.updated_at).toBe(true)
    expect((await owner().patch(pathOf(ref, id), bodyOf({}))).body).toEqual(changed.body)
    const cells = [{ id: 'a', ...QUERY, row_limit: 1 }]
    const rewritten = await developer.patch(pathOf(ref, id), bodyOf({ description: 'new', content: { cells } }))
    expect(rewritten.body.data.attributes).toMatchObject({
      ...{ name: 'New', description: 'new' },
      content: { schema_version: 1, cells },
    })
    expect((await developer.delete(pathOf(ref, id))).status).toBe(204)
    const gone = {
      status: 404,
      body: { error: { code: 'not_found.notebook', message: 'Not Found: Notebook not found' } },
    }
    expect(await owner().get(pathOf(ref, id))).toMatchObject(gone)
    expect(await owner().patch(pathOf(ref, id), bodyOf({ name: 'x' }))).toMatchObject(gone)
    expect(await owner().delete(pathOf(ref, id))).toMatchObject(gone)
  })

  it('keeps a favorite mark for each member, which does not change the notebook', async () => {
    const id = await save(organization.owner, ref)
    const developer = await newMember(organization, 'developer')
    const before = (await developer.get(pathOf(ref, id))).body.data
    const marked = await developer.patch(pathOf(ref, id), bodyOf({ favorite: true }))
    expect(marked.body.data).toEqual({ ...before, attributes: { ...before.attributes, favorite: true } })
    expect((await owner().get(pathOf(ref, id))).body.data).toEqual(before)
    const unmarked = await developer.patch(pathOf(ref, id), bodyOf({ favorite: false }))
    expect(unmarked.body.data).toEqual(before)
  })

  it('refuses cells of the same id, and changes of unknown cells', async () => {
    const withCells = (...ids: (string | undefined)[]) => ({ content: { cells: ids.map((id) => ({ ...TEXT, id })) } })
    const refusal = (code: string, n: number) => ({
      status: 400,
      body: { error: { code, issues: [{ meta: { field: `body.data.attributes.content.cells.${n}.id` } }] } },
    })
    const twice = await owner().post(pathOf(ref), bodyOf({ ...EMPTY, ...withCells('a', undefined, 'b', 'a') }))
    expect(twice).toMatchObject(refusal('notebook_cell_duplicate', 3))
    const id = await save(organization.owner, ref, withCells('a', 'b'))
    const before = (await owner().get(pathOf(ref, id))).body
    const change = (...ids: (string | undefined)[]) => owner().patch(pathOf(ref, id), bodyOf(withCells(...ids)))
    expect(await change('b', 'b')).toMatchObject(refusal('notebook_cell_duplicate', 1))
    expect(await change('b', undefined, 'c')).toMatchObject(refusal('notebook_cell_unknown', 2))
    expect((await owner().get(pathOf(ref, id))).body).toEqual(before)
    const { cells } = (await change('b', undefined, undefined)).body.data.attributes.content
    expect(new Set(cells.map((cell: { id: string }) => cell.id)).size).toBe(3)
    expect(cells[0].id).toBe('b')
  })

  it('refuses invalid fields and changes nothing', async () => {
    const id = await save(organization.owner, ref)
    const before = (await owner().get(pathOf(ref, id))).body
    for (const bad of [{ name: '' }, { description: 1 }, { favorite: 1 }, { content: { cells: [{}] } }]) {
      const reply = await owner().patch(pathOf(ref, id), bodyOf({ name: 'New', ...bad }))
      expect(reply.status).toBe(400)
      expect(reply.body.error.issues[0].meta.field).toContain(`body.data.attributes.${Object.keys(bad)[0]}`)
    }
    expect((await owner().get(pathOf(ref, id))).body).toEqual(before)
    for (const method of ['GET', 'PATCH', 'DELETE'])
      expect((await owner().request(method, pathOf(ref, 'x'))).status).toBe(400)
  })

  it("finds no notebook below another project's path, even of the same organization", async () => {
    const id = await save(organization.owner, ref)
    const other = await createProject(organization)
    expect((await owner().get(pathOf(other, id))).status).toBe(404)
    expect((await owner().patch(pathOf(other, id), bodyOf({ name: 'x', favorite: true }))).status).toBe(404)
    expect((await owner().delete(pathOf(other, id))).status).toBe(404)
    expect((await owner().get(pathOf(ref, id))).body.data.attributes).toMatchObject({ name: 'n', favorite: false })
  })

  it('shows no owner after the user is deleted', async () => {
    const userId = await newUser()
    await addMember(organization.id, userId, 'developer')
    const id = await save(await tokenOf(userId), ref)
    await control.execute(sql`delete from member_roles where user_id = ${userId}`)
    await control.execute(sql`delete from audit_log where actor_user_id = ${userId}`)
    await control.execute(sql`delete from users where id = ${userId}`)
    expect((await owner().get(pathOf(ref, id))).body.data.attributes).toMatchObject({ owner: null, updated_by: null })
  })
})

describe('GET /v2/projects/{ref}/notebooks', () => {
  let project: string
  const names: string[] = []
  beforeAll(async () => {
    project = await createProject(organization)
    await save(organization.owner, ref, { name: 'of another project' })
    for (let n = 0; n < 10; n++) {
      const name = `${String.fromCharCode(65 + ((n * 7) % 10))} ü 100% ${n >> 1}`
      // Two notebooks have the same moment: the cursor distinguishes them.
      await save(organization.owner.at(new Date(Date.UTC(2030, 0, 1, 0, n >> 1))), project, { name })
      names.push(name)
    }
  })

  it.each(['name', '-name', 'inserted_at', '-inserted_at'])(
    'pages by %s in both directions, without a gap or a repetition',
    async (sort) => {
      const whole = await open(owner(), `${pathOf(project)}?sort=${sort}`)
      const key = ({ id, attributes }: Listed) =>
        sort.endsWith('name') ? attributes.name : `${attributes.inserted_at} ${id}`
      const sorted = whole.data.map(key).sort()
      expect(whole.data.map(key)).toEqual(sort.startsWith('-') ? sorted.reverse() : sorted)
      expect(whole.links).toEqual({ first: `${pathOf(project)}?page[size]=20&sort=${sort}`, prev: null, next: null })
      const there: string[][] = []
      let page = await open(owner(), `${pathOf(project)}?page%5Bsize%5D=3&sort=${sort}`)
      there.push(namesOf(page))
      while (page.links.next) {
        page = await open(owner(), page.links.next)
        there.push(namesOf(page))
      }
      expect(there.map(({ length }) => length)).toEqual([3, 3, 3, 1])
      expect(there.flat()).toEqual(namesOf(whole))
      const beyond = await open(owner(), (page.links.prev ?? '').replace('page[before]', 'page[after]'))
      expect(beyond).toMatchObject({ data: [], links: { next: null } })
      expect(namesOf(await open(owner(), beyond.links.prev ?? ''))).toEqual(there[2])
      const back: string[][] = [namesOf(page)]
      while (page.links.prev) {
        page = await open(owner(), page.links.prev)
        back.unshift(namesOf(page))
      }
      expect(back).toEqual(there)
      expect(await open(owner(), page.links.next ?? '')).toMatchObject({ data: { length: 3 } })
    },
  )

  it('starts with the latest', async () => {
    const { data } = await open(owner(), pathOf(project))
    expect(data).toEqual((await open(owner(), `${pathOf(project)}?sort=-inserted_at`)).data)
  })

  it('finds by a part of the name in any case, and has no wildcards', async () => {
    const found = async (part: string) =>
      namesOf(await open(owner(), `${pathOf(project)}?sort=name&filter[name]=${encodeURIComponent(part)}`))
    expect(await found('a Ü')).toEqual(names.filter((name) => name.startsWith('A')))
    expect(await found('100% 4')).toHaveLength(2)
    expect(await found('1%0')).toEqual([])
    expect(await found('_')).toEqual([])
    const page = await open(owner(), `${pathOf(project)}?page[size]=1&filter[name]=${encodeURIComponent('100% 4')}`)
    expect(page.data).toHaveLength(1)
    expect((await open(owner(), page.links.next ?? '')).data).toHaveLength(1)
  })

  it.each([
    ['page[size]=0', 'page[size]'],
    ['page[size]=101', 'page[size]'],
    ['page[after]=x', 'page[after]'],
    ['page[after]=', 'page[after]'],
    [`page[after]=${btoa('1 x')}`, 'page[after]'],
    ['page[before]=x', 'page[before]'],
    [`page[after]=${btoa(`1 ${randomUUID()}`)}&page[before]=x`, 'page[before]'],
    [`sort=name&page[before]=${btoa(`1 ${randomUUID()}`)}`, 'page[before]'],
    [`page[after]=${btoa(`name a ${randomUUID()}`)}`, 'page[after]'],
    ['sort=id', 'sort'],
    ['filter[name]=', 'filter[name]'],
    [`filter[name]=${'x'.repeat(256)}`, 'filter[name]'],
  ])('refuses %s and names the parameter', async (query, parameter) => {
    const reply = await owner().get(`${pathOf(project)}?${query}`)
    expect(reply.status).toBe(400)
    expect(reply.body.error.issues[0].meta.field).toBe(`query.${parameter}`)
  })
})

describe('a removed project', () => {
  it('deletes its notebooks', async () => {
    const gone = await newProject(organization)
    await save(organization.owner, gone, { favorite: true })
    await organization.owner.delete(`/v1/projects/${gone}`)
    await untilGone(organization.owner, gone)
    expect(await control.$count(notebooks, eq(notebooks.projectRef, gone))).toBe(0)
  })
})

describe('the supabase CLI', () => {
  extended('runs notebooks pull and notebooks push', async () => {
    const project = await createProject(organization)
    await save(organization.owner, project, {
      name: 'Sales',
      description: 'd',
      content: { cells: [TEXT, QUERY, LOG] },
    })
    const cli = newCli(organization.owner)
    onTestFinished(cli.remove)
    const run = (...args: string[]) => cli.run('notebooks', ...args, `--remote=${project}`, '--yes', '--experimental')
    await save(organization.owner, project, { name: 'Plain', content: { cells: [TEXT] } })
    await run('pull')
    const folder = join(cli.home, 'supabase', 'notebooks')
    const file = join(folder, 'Sales.json')
    const text = readFileSync(file, 'utf8')
    expect(text).toContain('# Sales')
    writeFileSync(file, text.replace('# Sales', '# More sales'))
    writeFileSync(join(folder, 'Other.json'), text)
    const plain = join(folder, 'Plain.json')
    writeFileSync(plain, readFileSync(plain, 'utf8').replace('# Sales', '# Plain'))
    await run('push')
    const { data } = await open(owner(), `${pathOf(project)}?sort=name`)
    expect(data.map(({ attributes }) => attributes.name)).toEqual(['Other', 'Plain', 'Sales'])
    const cellsOf = async (id = '') => (await owner().get(pathOf(project, id))).body.data.attributes.content.cells
    expect(await cellsOf(data[1]?.id)).toMatchObject([{ text: '# Plain' }])
    expect(await cellsOf(data[2]?.id)).toMatchObject([{ text: '# More sales' }, QUERY, LOG])
  })
})

extended('lists a page without reading 100,000 notebooks', async () => {
  const url = new URL(inject('adminUrl'))
  url.pathname = '/pilothouse'
  const client = new pg.Client({ connectionString: url.href, options: '-c search_path=public' })
  await client.connect()
  const { userId } = organization
  const project = 'n'.repeat(20)
  await client.query(`begin; set local session_replication_role = replica;
    insert into notebooks (project_ref, owner_id, updated_by_id, name, cells, inserted_at, updated_at)
      select ref, '${userId}', '${userId}', 'notebook ' || n, '[]', now() + n * interval '1 second', now()
        from generate_series(1, 50000) n, unnest(array['${project}', '${'m'.repeat(20)}']) ref;
    analyze notebooks`)
  const statements: [string, unknown[]][] = []
  const db = drizzle(client, { logger: { logQuery: (text, params) => statements.push([text, params]) } })
  const ctx = { db, actor: { userId, scopes: [] } } as unknown as Ctx
  for (const sort of ['name', '-inserted_at']) {
    const query = NotebookListQuery.parse({ sort, 'page[size]': '20' })
    const { data, links } = await listNotebooks(ctx, { ref: project } as ProjectAccess, query)
    expect(data).toHaveLength(20)
    const after = new URLSearchParams(links.next?.split('?')[1]).get('page[after]') ?? ''
    const next = await listNotebooks(ctx, { ref: project } as ProjectAccess, { ...query, 'page[after]': after })
    expect(next.data).toHaveLength(20)
    for (const [text, params] of statements.slice(-2)) {
      const explained = await client.query(`explain (analyze, format json) ${text}`, params)
      const read = rowsRead(explained.rows[0]['QUERY PLAN'][0].Plan, 'notebooks')
      expect(read).toBeGreaterThanOrEqual(21)
      expect(read).toBeLessThan(100)
    }
  }
  await client.query('rollback')
  await client.end()
})
