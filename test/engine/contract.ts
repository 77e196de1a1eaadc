import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type ProjectEngine, parseRows } from '../../src/engine/engine.ts'
import { EngineUnavailable, SqlError, SqlTimeout, Superseded } from '../../src/engine/engine-errors.ts'
import { loginRole, type Power } from '../../src/engine/logins.ts'
import type { ProjectNames } from '../../src/engine/names.ts'
import { createBucket } from '../../src/services/storage/statements/buckets.ts'
import { insertObject } from '../../src/services/storage/statements/objects.ts'
import { newRef, RUNNER_PASSWORD, specOf, withClient } from './specs.ts'
import { newObject } from './storage-database.ts'

export interface EngineUnderTest {
  engine: ProjectEngine
  /** Returns the names of a project's roles and of its database. */
  names(ref: string): ProjectNames
  /** The powers of a project's owner, beside owning their objects. */
  owner: OwnerPowers
  /** Connects a client as users do, as the project's owner unless another role is named. */
  connect(ref: string, password: string, role?: string): Promise<pg.Client>
  stop(): Promise<void>
}

interface OwnerPowers {
  attributes: readonly string[]
  /** Roles that the owner can become, beside their own. */
  roles: readonly string[]
  /** Statements that would change what the services rely on, so they are refused. */
  refused: readonly string[]
}

/** The owner's powers in a project of a cluster that the driver made itself. */
export const PLAIN_OWNER: OwnerPowers = {
  attributes: [],
  roles: ['anon', 'authenticated', 'pg_database_owner', 'postgres', 'service_role'],
  refused: [
    'insert into pgbouncer.removed_versions (version) values (gen_random_uuid()::text)',
    'alter role anon bypassrls',
  ],
}

const PASSWORD = specOf(newRef()).password
const ANOTHER_PASSWORD = 'Another-0wner_of-it'
const refuse = async () => false

/** Settles once the server has ended the session. */
function endOf(client: pg.Client): Promise<void> {
  client.on('error', () => {})
  return new Promise((resolve) => {
    client.once('end', resolve)
  })
}

/** Tests what every driver promises; `start` returns the driver under test. */
export function engineContract(start: () => Promise<EngineUnderTest>): void {
  let running: EngineUnderTest
  /** A project made once, for the tests that leave nothing behind. */
  let shared: string
  const engine = () => running.engine
  const namesOf = (ref: string) => running.names(ref)

  beforeAll(async () => {
    running = await start()
    shared = await project()
  })
  afterAll(() => running.stop())

  async function project(sql?: string): Promise<string> {
    const ref = newRef()
    await engine().create(specOf(ref))
    if (sql) await query(ref, sql)
    return ref
  }

  const request = (ref: string) => ({ ref, runnerPassword: specOf(ref).runnerPassword })
  const query = async (ref: string, text: string) =>
    (await parseRows(await engine().runSql({ ...request(ref), query: text, readOnly: false }))) as Record<
      string,
      unknown
    >[]
  const read = async (ref: string, text: string) =>
    (await parseRows(await engine().runSql({ ...request(ref), query: text, readOnly: true }))) as Record<
      string,
      unknown
    >[]
  const ask = <Row extends pg.QueryResultRow>(ref: string, password: string, text: string) =>
    withClient(running.connect(ref, password), async (client) => (await client.query<Row>(text)).rows)
  const batch = (ref: string, ...statements: { text: string; params: readonly unknown[] }[]) =>
    engine().runBatch({ ...request(ref), statements })
  const copied = async (from: string, data: boolean, to = newRef()) => {
    await engine().copy({ from, fromRunnerPassword: RUNNER_PASSWORD, to: specOf(to), data })
    return to
  }

  describe('create', () => {
    test('gives the owner a database of their own, opened by their password', async () => {
      const rows = await ask(
        shared,
        PASSWORD,
        'select current_user as name, session_user as login, current_database() as database',
      )
      const { owner, database } = namesOf(shared)
      expect(rows).toEqual([{ name: owner, login: owner, database }])
    })

    test('gives the schemas, roles and extensions that clients expect', async () => {
      const [found] = await read(
        shared,
        `select to_regclass('storage.objects') is not null as storage, to_regprocedure('auth.uid()') is not null as auth,
           to_regclass('supabase_migrations.schema_migrations') is not null as history,
           (select count(*)::int from pg_roles where rolname in ('anon', 'authenticated', 'service_role')) as roles,
           (select array_agg(extname order by extname) from pg_extension where extnamespace = 'extensions'::regnamespace) as extensions`,
      )
      expect(found).toEqual({
        ...{ storage: true, auth: true, history: true, roles: 3 },
        extensions: expect.arrayContaining(['pgcrypto', 'uuid-ossp']),
      })
    })

    test('makes the owner no superuser, who can become only the roles of the API and of apps', async () => {
      const [own] = await query(
        shared,
        `select rolsuper, rolcreaterole, rolcreatedb, rolbypassrls, rolreplication from pg_roles where rolname = current_user`,
      )
      const { attributes, roles } = running.owner
      expect(Object.keys(own ?? {}).filter((name) => own?.[name])).toEqual(attributes)
      const others = await query(
        shared,
        `select rolname from pg_roles where pg_has_role(rolname, 'SET') and rolname <> current_user order by 1`,
      )
      expect(others.map(({ rolname }) => rolname)).toEqual(roles)
      await expect(query(shared, 'alter role current_user superuser')).rejects.toMatchObject({ code: '42501' })
    })

    test('keeps the data and sets both passwords when it is repeated', async () => {
      const ref = await project('create table kept as select 1 as n')
      await engine().create({ ref, password: ANOTHER_PASSWORD, runnerPassword: 'another runner, Of 20' })
      expect(await ask(ref, ANOTHER_PASSWORD, 'select n from kept')).toEqual([{ n: 1 }])
      await expect(ask(ref, PASSWORD, 'select')).rejects.toMatchObject({ code: '28P01' })
      const renewed = { ref, runnerPassword: 'another runner, Of 20', readOnly: true }
      expect(await parseRows(await engine().runSql({ ...renewed, query: 'select n from kept' }))).toEqual([{ n: 1 }])
    })

    test('does nothing if the fence refuses', async () => {
      const ref = newRef()
      await expect(engine().create(specOf(ref), refuse)).rejects.toThrow(Superseded)
      expect(await engine().health(ref, 5_000)).toMatchObject({ healthy: false })
    })
  })

  describe('SQL', () => {
    test('runs several statements as the owner and returns the rows of the last', async () => {
      expect(await query(shared, `select 1 as a; select 'é' as b, current_user as name`)).toEqual([
        { b: 'é', name: namesOf(shared).owner },
      ])
    })

    test('takes parameters', async () => {
      const parameters = [3, 'three']
      const result = await engine().runSql({
        ...request(shared),
        query: 'select $1::int as n, $2 as t',
        parameters,
        readOnly: false,
      })
      expect(await parseRows(result)).toEqual([{ n: 3, t: 'three' }])
    })

    test('reports what Postgres says about a statement that it refuses', async () => {
      const refused = query(shared, 'select 1; select nothing_there')
      await expect(refused).rejects.toThrow(SqlError)
      await expect(refused).rejects.toMatchObject({ code: '42703', position: 18 })
    })

    test('stops a statement that runs too long, and leaves nothing of it running', async () => {
      const slow = { ...request(shared), query: `select pg_sleep(60), 'slow one'`, readOnly: false, timeoutMs: 1_000 }
      await expect(engine().runSql(slow)).rejects.toThrow(SqlTimeout)
      await expect
        .poll(() =>
          query(
            shared,
            `select 1 as n from pg_stat_activity where query like '%''slow one''%' and pid <> pg_backend_pid()`,
          ),
        )
        .toEqual([])
    })

    test('stops even a statement that removed its own time limit', async () => {
      const query = `set statement_timeout = 0; select pg_sleep(60)`
      const slow = engine().runSql({ ...request(shared), query, readOnly: false, timeoutMs: 1_000 })
      await expect(slow).rejects.toThrow(SqlTimeout)
    })

    test('restores its password after SQL changed it', async () => {
      const ref = await project()
      await engine().runSql({
        ...request(ref),
        query: `set role none; alter role current_user password 'Lost-and-gone_1'`,
        readOnly: false,
      })
      expect(await query(ref, 'select 1 as n')).toEqual([{ n: 1 }])
    })
  })

  describe('read-only SQL', () => {
    test('reads what the owner made, whatever its policies say', async () => {
      const ref = await project(
        `create table secrets (n int); insert into secrets values (7); alter table secrets enable row level security`,
      )
      expect(await read(ref, 'select n from secrets')).toEqual([{ n: 7 }])
    })

    test.each([
      'create table t (n int)',
      `set default_transaction_read_only = off; create table t (n int)`,
      `set transaction read write; create table t (n int)`,
      'commit; create table t (n int)',
      `set role p_owner; create table t (n int)`,
    ])('refuses %s', async (text) => {
      const refused = read(shared, text.replace('p_owner', namesOf(shared).owner))
      await expect(refused).rejects.toThrow(SqlError)
      expect(await read(shared, `select to_regclass('public.t')::text as t`)).toEqual([{ t: null }])
    })
  })

  describe('a batch', () => {
    test('runs the statements of the storage server: buckets, objects, and the roles of the API', async () => {
      const ref = await project()
      const rules = { fileSizeLimit: null, allowedMimeTypes: null, type: 'STANDARD' as const, ownerId: null }
      await batch(ref, createBucket({ id: 'b', name: 'b', public: false, ...rules }))
      await batch(ref, insertObject(newObject('b', 'folder/name.txt')))
      const asAnon = { text: `select set_config('role', 'anon', true)`, params: [] }
      const count = { text: 'select count(*)::int as n from storage.objects', params: [] }
      expect((await batch(ref, count))[0]).toEqual([{ n: 1 }])
      expect((await batch(ref, asAnon, count))[1]).toEqual([{ n: 0 }])
      await query(ref, 'create policy everybody on storage.objects for select to anon using (true)')
      expect((await batch(ref, asAnon, count))[1]).toEqual([{ n: 1 }])
    })

    test('records the versions of deleted objects', async () => {
      const ref = await project()
      const rules = { fileSizeLimit: null, allowedMimeTypes: null, type: 'STANDARD' as const, ownerId: null }
      const object = newObject('b', 'gone')
      await batch(ref, createBucket({ id: 'b', name: 'b', public: false, ...rules }), insertObject(object))
      await query(ref, 'delete from storage.objects')
      const removed = { text: 'select version from pgbouncer.removed_versions', params: [] }
      expect((await batch(ref, removed))[0]).toEqual([{ version: object.version }])
    })

    test('is one transaction', async () => {
      const ref = await project('create table t (n int primary key); grant all on t to service_role')
      const become = { text: `select set_config('role', 'service_role', true)`, params: [] }
      const insert = { text: 'insert into public.t values ($1)', params: [1] }
      await expect(batch(ref, become, insert, insert)).rejects.toMatchObject({ code: '23505' })
      expect(await query(ref, 'select * from t')).toEqual([])
    })
  })

  describe('a transaction', () => {
    test('commits the writes of its work, and rolls back all of them if the work fails', async () => {
      const ref = await project('create table t (n int)')
      const insert = (n: number, fail = false) =>
        engine().transaction(request(ref), async (tx) => {
          await tx.rows('insert into t values ($1)', [n])
          if (fail) throw new Error('the work failed')
          return n
        })
      expect(await insert(1)).toBe(1)
      await expect(insert(2, true)).rejects.toThrow('the work failed')
      expect(await query(ref, 'select n from t')).toEqual([{ n: 1 }])
    })
  })

  describe('the password', () => {
    test('changes: the new one opens the database, the old one no longer does', async () => {
      const ref = await project()
      await engine().setPassword(ref, ANOTHER_PASSWORD)
      expect(await ask(ref, ANOTHER_PASSWORD, 'select 1 as n')).toEqual([{ n: 1 }])
      await expect(ask(ref, PASSWORD, 'select')).rejects.toMatchObject({ code: '28P01' })
    })
  })

  describe('temporary logins', () => {
    const allow = async () => true
    const owned = async () => PASSWORD
    const put = async (ref: string, power: Power, letters = 'abcdefgh', password = 'A-random_1 password') => {
      const role = loginRole(power === 'owner' ? 'jit' : 'cli', letters)
      await engine().logins.put({ ref, role, power, password, expiresAt: new Date(Date.now() + 3_600_000) }, allow)
      return running.connect(ref, password, role)
    }
    const roleOf = async (client: pg.Client) =>
      (await client.query<{ name: string }>('select session_user::text as name')).rows[0]?.name ?? ''

    test('act as the owner, who owns what they make', async () => {
      const ref = await project()
      const client = await put(ref, 'owner')
      await client.query('create table made (n int)')
      const { rows } = await client.query(
        `select relowner::regrole::text as owner from pg_class where relname = 'made'`,
      )
      expect(rows).toEqual([{ owner: namesOf(ref).owner }])
      await client.end()
    })

    test('read everything and write nothing, as the reader', async () => {
      const ref = await project('create table t as select 1 as n; alter table t enable row level security')
      const client = await put(ref, 'reader')
      expect((await client.query('select n from t')).rows).toEqual([{ n: 1 }])
      await client.query('set default_transaction_read_only = off')
      for (const text of [
        'insert into t values (2)',
        `set role ${namesOf(ref).owner}`,
        `set role ${namesOf(ref).reader}`,
      ]) {
        await expect(client.query(text), text).rejects.toMatchObject({ code: '42501' })
      }
      await client.end()
    })

    test.each(['anon', 'authenticated', 'service_role'] as const)('act as %s', async (power) => {
      const client = await put(shared, power, `${power.replace('_', '')}abcdefgh`.slice(0, 8))
      expect((await client.query('select current_user::text as name')).rows).toEqual([{ name: power }])
      const role = await roleOf(client)
      await client.end()
      await engine().logins.end(shared, [role], owned)
    })

    test('get another password, and sessions opened with the old one stay', async () => {
      const ref = await project()
      const client = await put(ref, 'owner')
      const again = await put(ref, 'owner', 'abcdefgh', 'Another-random_1')
      expect((await client.query('select 1 as n')).rows).toEqual([{ n: 1 }])
      await expect(running.connect(ref, 'A-random_1 password', await roleOf(client))).rejects.toMatchObject({
        code: '28P01',
      })
      await Promise.all([client.end(), again.end()])
    })

    test('end at once with their sessions, and the owner keeps what they owned', async () => {
      const ref = await project()
      const client = await put(ref, 'owner')
      const role = await roleOf(client)
      await client.query(`create schema kept; grant all on schema kept to ${role}; set role none;
        create table kept.t as select 7 as n; create table kept.u (n int)`)
      const cut = endOf(client)
      await engine().logins.end(ref, [role], owned)
      await cut
      await expect(running.connect(ref, 'A-random_1 password', role)).rejects.toThrow()
      expect(await query(ref, 'select n from kept.t')).toEqual([{ n: 7 }])
      expect(await query(ref, `select rolname from pg_roles where rolname = '${role}'`)).toEqual([])
      await engine().logins.end(ref, [role], owned)
    })

    test('all end, even if one of them changed its role in a transaction that it leaves open', async () => {
      const ref = await project()
      const [open, other] = [await put(ref, 'owner'), await put(ref, 'owner', 'ijklmnop')]
      const roles = [await roleOf(open), await roleOf(other)]
      await open.query(`begin; set role none; alter role current_user password 'Kept-0pen_99'`)
      const cut = Promise.all([endOf(open), endOf(other)])
      await engine().logins.end(ref, roles, owned)
      await cut
      expect(await query(ref, `select rolname from pg_roles where rolname in ('${roles.join("', '")}')`)).toEqual([])
    })

    test("leave the owner's password as it was, even if a session keeps a change of it open", async () => {
      const ref = await project()
      const client = await put(ref, 'owner')
      const role = await roleOf(client)
      await client.query(`alter role current_user password 'Taken-over_99'`)
      const thief = await running.connect(ref, 'Taken-over_99')
      await thief.query(`begin; alter role current_user password 'Kept-0pen_99'`)
      const cut = Promise.all([endOf(client), endOf(thief)])
      await engine().logins.end(ref, [role], owned)
      await cut
      expect(await ask(ref, PASSWORD, 'select 1 as n')).toEqual([{ n: 1 }])
    })

    test('do not leave the owner a password that a login set', async () => {
      const ref = await project()
      const client = await put(ref, 'owner')
      const role = await roleOf(client)
      await client.query(`alter role current_user password 'Taken-over_99'`)
      const cut = endOf(client)
      await engine().logins.end(ref, [role], owned)
      await cut
      await expect(running.connect(ref, 'Taken-over_99')).rejects.toMatchObject({ code: '28P01' })
      expect(await ask(ref, PASSWORD, 'select 1 as n')).toEqual([{ n: 1 }])
    })

    test('are listed while they have sessions', async () => {
      const ref = await project()
      const client = await put(ref, 'reader')
      const unused = { ref, role: loginRole('cli', 'ijklmnop'), power: 'owner' as const, password: 'A-random_1' }
      await engine().logins.put({ ...unused, expiresAt: new Date(Date.now() + 3_600_000) }, allow)
      expect(await engine().logins.listInUse(ref)).toEqual([await roleOf(client)])
      await client.end()
      await expect.poll(() => engine().logins.listInUse(ref)).toEqual([])
    })

    test('open nothing after they expire', async () => {
      const ref = await project()
      const role = loginRole('cli', 'overover')
      const password = 'A-random_1 password'
      await engine().logins.put({ ref, role, power: 'owner', password, expiresAt: new Date(Date.now() - 1_000) }, allow)
      await expect(running.connect(ref, password, role)).rejects.toMatchObject({ code: '28P01' })
    })

    test('are not made if the fence refuses', async () => {
      const role = loginRole('cli', 'refusedd')
      const login = { ref: shared, role, power: 'owner' as const, password: 'A-random_1', expiresAt: new Date() }
      await expect(engine().logins.put(login, refuse)).rejects.toThrow(Superseded)
      expect(await query(shared, `select rolname from pg_roles where rolname = '${role}'`)).toEqual([])
    })

    test('of a removed project have ended', async () => {
      await engine().logins.end(newRef(), [loginRole('cli', 'nobodysx')], owned)
    })
  })

  describe('health', () => {
    test('is good if the database answers, and names the reason if there is no database', async () => {
      expect(await engine().health(shared, 10_000)).toEqual({ healthy: true })
      expect(await engine().health(newRef(), 10_000)).toEqual({ healthy: false, error: 'the database does not exist' })
    })
  })

  describe('pause and resume', () => {
    test('close the database to everybody, open sessions included, and open it again with all its data', async () => {
      const ref = await project('create table kept as select 1 as n')
      const client = await running.connect(ref, PASSWORD)
      const cut = endOf(client)
      await engine().pause(ref)
      await cut
      if (!engine().wokenRefs) await expect(running.connect(ref, PASSWORD)).rejects.toThrow()
      await expect(query(ref, 'select 1')).rejects.toThrow(EngineUnavailable)
      await expect(batch(ref, { text: 'select 1', params: [] })).rejects.toThrow(EngineUnavailable)
      expect(await engine().health(ref, 10_000)).toEqual({
        healthy: false,
        error: 'the database accepts no connections',
      })
      await engine().pause(ref)

      if (engine().wokenRefs) {
        const woken = await running.connect(ref, PASSWORD)
        expect(await engine().wokenRefs?.()).toContain(ref)
        const ended = endOf(woken)
        await engine().pause(ref)
        await ended
        expect(await engine().wokenRefs?.()).not.toContain(ref)
      }
      await engine().resume(ref)
      await engine().resume(ref)
      expect(await engine().health(ref, 10_000)).toEqual({ healthy: true })
      expect(await ask(ref, PASSWORD, 'select n from kept')).toEqual([{ n: 1 }])
      expect(await query(ref, 'select n from kept')).toEqual([{ n: 1 }])
    })

    test.each(['pause', 'remove'] as const)('%s ends what the owner left open', async (how) => {
      const ref = await project()
      const [role, database] = await Promise.all([running.connect(ref, PASSWORD), running.connect(ref, PASSWORD)])
      const cut = Promise.all([endOf(role), endOf(database)])
      await role.query(`begin; alter role current_user password '${PASSWORD}'`)
      await database.query(`begin; grant temporary on database ${namesOf(ref).database} to anon`)
      await engine()[how](ref)
      await cut
      expect((await engine().health(ref, 10_000)).healthy).toBe(false)
    })

    test('refuse a project that does not exist, where they would open it', async () => {
      await expect(engine().resume(newRef())).rejects.toThrow(EngineUnavailable)
    })
  })

  describe('restart', () => {
    test('ends the sessions and accepts new ones at once', async () => {
      const ref = await project()
      const client = await running.connect(ref, PASSWORD)
      const cut = endOf(client)
      await engine().restart(ref)
      await cut
      expect(await ask(ref, PASSWORD, 'select 1 as n')).toEqual([{ n: 1 }])
    })
  })

  describe('fences', () => {
    test('keep an overtaken attempt from pausing, restarting and removing', async () => {
      await expect(engine().pause(shared, refuse)).rejects.toThrow(Superseded)
      await expect(engine().restart(shared, refuse)).rejects.toThrow(Superseded)
      await expect(engine().remove(shared, refuse)).rejects.toThrow(Superseded)
      expect(await engine().health(shared, 10_000)).toEqual({ healthy: true })
    })
  })

  describe('copy', () => {
    const PARENT = `create table people (id int generated always as identity primary key, name text);
      insert into people (name) values ('Ada'), ('Grace');
      insert into supabase_migrations.schema_migrations (version, name) values ('20260101000000', 'people')`

    test('with data is a project of its own with everything that the parent has', async () => {
      const parent = await project(PARENT)
      const copy = await copied(parent, true)
      expect(await ask(copy, PASSWORD, 'select current_user as u, current_database() as d')).toEqual([
        { u: namesOf(copy).owner, d: namesOf(copy).database },
      ])
      await query(copy, `insert into people (name) values ('Edsger')`)
      expect(await read(copy, 'select name from people order by id')).toEqual(
        ['Ada', 'Grace', 'Edsger'].map((name) => ({ name })),
      )
      expect(await read(parent, 'select count(*)::int as n from people')).toEqual([{ n: 2 }])
      await engine().setPassword(parent, ANOTHER_PASSWORD)
      expect(await ask(copy, PASSWORD, 'select 1 as n')).toEqual([{ n: 1 }])
      await engine().remove(copy)
      expect(await read(parent, 'select count(*)::int as n from people')).toEqual([{ n: 2 }])
    })

    test('without data has only the schema and the history of its migrations', async () => {
      const copy = await copied(await project(PARENT), false)
      expect(await query(copy, 'select * from people')).toEqual([])
      expect(await query(copy, 'select version, name from supabase_migrations.schema_migrations')).toEqual([
        { version: '20260101000000', name: 'people' },
      ])
      expect(await query(copy, `insert into people (name) values ('Edsger') returning name`)).toEqual([
        { name: 'Edsger' },
      ])
    })

    test.each([true, false])(
      'leaves out the objects, because their bytes are not copied (with data: %s)',
      async (data) => {
        const parent = await project()
        const rules = { fileSizeLimit: null, allowedMimeTypes: null, type: 'STANDARD' as const, ownerId: null }
        const bucket = createBucket({ id: 'b', name: 'b', public: false, ...rules })
        await batch(parent, bucket, insertObject(newObject('b', 'name')))
        const copy = await copied(parent, data)
        const left = `select (select count(*)::int from storage.objects) as objects,
        (select count(*)::int from storage.buckets) as buckets, (select count(*)::int from pgbouncer.removed_versions) as removed`
        expect((await batch(copy, { text: left, params: [] }))[0]).toEqual([
          { objects: 0, buckets: data ? 1 : 0, removed: 0 },
        ])
        if (!data) await batch(copy, bucket)
        await batch(copy, insertObject(newObject('b', 'name')))
      },
    )

    test('ends no session of the parent', async () => {
      const parent = await project(PARENT)
      await withClient(running.connect(parent, PASSWORD), async (client) => {
        await client.query(`begin; insert into people (name) values ('not yet')`)
        const copy = await copied(parent, true)
        await client.query('commit')
        expect(await read(copy, 'select count(*)::int as n from people')).toEqual([{ n: 2 }])
      })
    })

    test('changes nothing when it is repeated', async () => {
      const parent = await project(PARENT)
      const copy = await copied(parent, true)
      await query(copy, `insert into people (name) values ('Edsger')`)
      await copied(parent, true, copy)
      expect(await read(copy, 'select count(*)::int as n from people')).toEqual([{ n: 3 }])
    })

    test('can be copied too, and ends when its parent is removed', async () => {
      const first = await copied(await project(PARENT), true)
      const second = await copied(first, true)
      expect(await read(second, 'select count(*)::int as n from people')).toEqual([{ n: 2 }])
    })

    test('is not made if the fence refuses', async () => {
      const to = newRef()
      await expect(
        engine().copy({ from: shared, fromRunnerPassword: RUNNER_PASSWORD, to: specOf(to), data: true }, refuse),
      ).rejects.toThrow(Superseded)
      expect(await engine().health(to, 10_000)).toMatchObject({ healthy: false })
    })

    test('differs from its parent by the changes made in it', async () => {
      const parent = await project(PARENT)
      const copy = await copied(parent, true)
      const change = () => engine().diff({ from: request(parent), to: request(copy) })
      expect(await change()).toBe('')
      await query(copy, 'alter table people add born date')
      const sql = await change()
      await query(parent, sql)
      expect(await change()).toBe('')
    })
  })

  describe('remove', () => {
    test('leaves nothing, can be repeated, and accepts a project that never existed', async () => {
      const ref = await project()
      const client = await running.connect(ref, PASSWORD)
      const cut = endOf(client)
      await engine().remove(ref)
      await cut
      await engine().remove(ref)
      await engine().remove(newRef())
      expect(await engine().health(ref, 10_000)).toEqual({ healthy: false, error: 'the database does not exist' })
      await expect(query(ref, 'select 1')).rejects.toThrow(EngineUnavailable)
      await expect(running.connect(ref, PASSWORD)).rejects.toThrow()
    })

    test('shows in the list of projects', async () => {
      const ref = await project()
      expect(await engine().refs()).toContain(ref)
      await engine().remove(ref)
      expect(await engine().refs()).not.toContain(ref)
    })

    test('makes room for a new project of the same name', async () => {
      const ref = await project('create table old (n int)')
      await engine().remove(ref)
      await engine().create(specOf(ref))
      expect(await query(ref, `select to_regclass('old')::text as found`)).toEqual([{ found: null }])
    })
  })

  describe('isolation', () => {
    test('one owner neither reaches another project nor sees its activity', async () => {
      const other = await project()
      await withClient(running.connect(other, PASSWORD), async (client) => {
        await client.query(`select 'a secret of the neighbour'`)
        const seen = `select 1 as n from pg_stat_activity where query like '%secret of the neighbour%' and pid <> pg_backend_pid()`
        expect(await ask(shared, PASSWORD, seen)).toEqual([])
      })
      const { owner } = namesOf(other)
      if (owner === namesOf(shared).owner) return
      await expect(query(shared, `alter role ${owner} password 'Taken-over_99'`)).rejects.toThrow(SqlError)
    })

    test('the owner cannot change what the services rely on', async () => {
      const { owner, storage } = namesOf(shared)
      for (const text of [
        'drop schema storage cascade',
        'drop table pgbouncer.removed_versions',
        ...running.owner.refused,
        `alter role ${storage} password 'Taken-over_99'`,
        `set role none; grant ${storage} to ${owner} with set true`,
      ]) {
        await expect(query(shared, text), text).rejects.toMatchObject({ code: '42501' })
      }
    })
  })

  describe('settings', () => {
    test('take the values they are set to, and a value that Postgres refuses is named', async () => {
      const ref = await project()
      const { settings } = engine()
      await settings.configure(ref, { set: { work_mem: '12MB' }, reset: [], connectionsMax: null })
      expect(await query(ref, 'show work_mem')).toEqual([{ work_mem: '12MB' }])
      await settings.configure(ref, { set: {}, reset: ['work_mem'], connectionsMax: null })
      expect(await query(ref, 'show work_mem')).not.toEqual([{ work_mem: '12MB' }])
      const wrong = settings.configure(ref, { set: { work_mem: 'a lot' }, reset: [], connectionsMax: null })
      await expect(wrong).rejects.toMatchObject({ refusals: [{ setting: 'work_mem' }] })
    })

    test('refuse writes when they are read-only, and allow them again afterwards', async () => {
      const ref = await project('create table t (n int)')
      const { settings } = engine()
      await settings.setReadOnly(ref, true)
      await expect(query(ref, 'insert into t values (1)')).rejects.toMatchObject({ code: '25006' })
      expect(await settings.filterReadOnly([ref, shared])).toEqual(new Set([ref]))
      await settings.setReadOnly(ref, false)
      await query(ref, 'insert into t values (1)')
      expect(await settings.filterReadOnly([ref])).toEqual(new Set())
    })

    test('report the sizes of the existing databases', async () => {
      const sizes = await engine().settings.sizesOf([shared, newRef()])
      expect([...sizes.keys()]).toEqual([shared])
      expect(sizes.get(shared)).toBeGreaterThan(1_000_000)
    })
  })
}
