import { randomUUID } from 'node:crypto'
import { beforeAll, expect, it } from 'vitest'
import { newDataApi, type TestDataApi, writeOf } from '../../support/data-api.ts'

const SCHEMA = `
  create table notes (id int primary key, owner uuid, body text);
  alter table notes enable row level security;
  create policy own on notes for select to authenticated using (owner = auth.uid());
  insert into notes values (1, null, 'a'), (2, null, 'b'), (3, null, 'c');
  create schema other;
  create table other.notes (id int primary key);
  insert into other.notes values (9);
  grant usage on schema other to service_role;
  grant select on other.notes to service_role`

let api: TestDataApi
beforeAll(async () => {
  api = await newDataApi(SCHEMA)
})

const setConfig = (settings: object) => api.organization.owner.patch(`/v1/projects/${api.ref}/postgrest`, settings)

it('a repeated address gets the reply that its headers and method ask for', async () => {
  await setConfig({ db_schema: 'public, other' })
  const ask = async (init: RequestInit) => {
    const response = await api.send(api.keys.service, '/notes?select=id&order=id', init)
    return [response.status, response.headers.get('content-range'), await response.text()]
  }
  const all = '[{"id":1}, \n {"id":2}, \n {"id":3}]'
  const expected: [RequestInit, unknown[]][] = [
    [{}, [200, '0-2/*', all]],
    [{ headers: { accept: 'text/csv' } }, [200, '0-2/*', 'id\n1\n2\n3']],
    [{ headers: { accept: 'application/vnd.pgrst.object+json' } }, [406, null, expect.stringContaining('PGRST116')]],
    [{ headers: { prefer: 'count=exact' } }, [200, '0-2/3', all]],
    [{ headers: { prefer: 'handling=strict, wrong=1' } }, [400, null, expect.stringContaining('PGRST122')]],
    [{ headers: { range: '1-1' } }, [200, '1-1/*', '[{"id":2}]']],
    [{ method: 'HEAD' }, [200, '0-2/*', '']],
    [{ headers: { 'accept-profile': 'other' } }, [200, '0-0/*', '[{"id":9}]']],
  ]
  await expect.poll(() => ask({ headers: { 'accept-profile': 'other' } })).toEqual([200, '0-0/*', '[{"id":9}]'])
  for (const [init, reply] of [...expected, ...expected.toReversed()]) expect(await ask(init)).toEqual(reply)
})

it('a repeated address gives each caller the rows that the caller may read', async () => {
  const user = randomUUID()
  await api.json('/notes', writeOf('POST', { id: 4, owner: user, body: 'd' }))
  const [own, another] = await Promise.all([api.tokenOf(user), api.tokenOf(randomUUID())])
  const idsFor = async (token: string) => {
    const { body } = await api.json('/notes?select=id&order=id&limit=9', {
      headers: { authorization: `Bearer ${token}` },
    })
    return (body as { id: number }[]).map(({ id }) => id)
  }
  const { anon, service } = api.keys
  for (const token of [service, own, another, anon, own, service]) {
    const visible = new Map([
      [service, [1, 2, 3, 4]],
      [own, [4]],
    ])
    expect(await idsFor(token)).toEqual(visible.get(token) ?? [])
  }
  await api.sql('delete from notes where id = 4')
})

it('a repeated address follows changes of the rows, of the schema and of the settings', async () => {
  const get = async () => (await api.json('/notes?order=id')).body
  expect(await get()).toHaveLength(3)
  await api.sql(`update notes set body = 'x' where id = 1`)
  expect((await get())[0]).toEqual({ id: 1, owner: null, body: 'x' })
  await api.sql(
    'drop policy own on notes; alter table notes drop column owner; alter table notes add column at int default 7',
  )
  expect((await get())[0]).toEqual({ id: 1, body: 'x', at: 7 })
  await setConfig({ max_rows: 2 })
  await expect.poll(get).toHaveLength(2)
  await api.sql('drop table notes')
  expect(await get()).toMatchObject({ code: 'PGRST205' })
})
