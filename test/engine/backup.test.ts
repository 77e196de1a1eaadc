import { beforeEach, describe, expect, it, vi } from 'vitest'
import { difference, readCatalogue, readRows } from './copy-catalogue.ts'
import {
  asAdmin,
  asOwner,
  everyKind,
  leftOf,
  newParent,
  specOf,
  untilIdle,
  useEngine,
  withClient,
} from './copy-projects.ts'

const { engine, cluster } = await useEngine()

const backupOf = (ref: string, id = 1) => ({ ...specOf(ref), id })

async function restore(ref: string, id = 1): Promise<void> {
  await engine.backups.unpack(backupOf(ref, id))
  await engine.backups.replace({ ref, id })
  await engine.resume(ref)
}

async function databasesOf(ref: string): Promise<string[]> {
  const { rows } = await cluster.query('select datname from pg_database where starts_with(datname, $1) order by 1', [
    `p_${ref}`,
  ])
  return rows.map(({ datname }) => datname.slice(`p_${ref}`.length))
}

/** All that the cluster keeps of the database outside it. */
async function outside(ref: string) {
  const { rows } = await cluster.query(
    `select pg_get_userbyid(datdba) as owner, datallowconn, datistemplate,
        array(select item::text from unnest(datacl) item order by 1) as acl,
        array(select setrole::regrole || ' ' || setconfig::text from pg_db_role_setting where setdatabase = d.oid order by 1) as settings
       from pg_database d where datname = $1`,
    [`p_${ref}`],
  )
  return rows
}

describe('a backup', () => {
  it.each(['idle', 'used'])(
    'of a database that is %s brings everything back',
    async (kind) => {
      const ref = await newParent(engine, await everyKind())
      const inside = () =>
        withClient(asAdmin(`p_${ref}`), async (client) => ({
          catalogue: await readCatalogue(client, `p_${ref}`),
          rows: await readRows(client),
          objects: (await client.query('select * from storage.objects order by id')).rows,
        }))
      const before = { ...(await inside()), outside: await outside(ref) }
      await untilIdle(ref)
      const make = () => engine.backups.make(backupOf(ref))
      if (kind === 'idle') await make()
      else await withClient(asOwner(ref), make)
      await withClient(asOwner(ref), (owner) =>
        owner.query('drop schema app cascade; create table public.later (); grant all on public.later to anon'),
      )
      await restore(ref)
      const after = { ...(await inside()), outside: await outside(ref) }
      expect(after.outside).toEqual(before.outside)
      expect(after.objects).toEqual(before.objects)
      expect(after.rows).toEqual(before.rows)
      // What the copies' own tests explain: places of columns that are no more, and a flag of attached keys.
      const found = Object.values(difference(before.catalogue, after.catalogue)).flat()
      expect(found.filter((row) => !/pg\.dropped|"contype":"p".*events/.test(row))).toEqual([])
      expect(await databasesOf(ref)).toEqual(['', '_b1'])
      await withClient(asOwner(ref), (owner) => owner.query('create table app.mine (); drop table app.mine'))
      await engine.remove(ref)
      expect(await databasesOf(ref)).toEqual([])
    },
    60_000,
  )
})

it('is made while others work on the project', async () => {
  const ref = await newParent(engine, 'create table t (n int)')
  await withClient(asOwner(ref), async (owner) => {
    await owner.query('begin; lock table t')
    let made = false
    const making = engine.backups.make(backupOf(ref)).then(() => {
      made = true
    })
    await vi.waitFor(async () => expect(await databasesOf(ref)).toEqual(['', '_b1']), { timeout: 60_000 })
    await engine.settings.configure(ref, { set: { work_mem: '7MB' }, reset: [], connectionsMax: null })
    expect(made).toBe(false)
    await owner.query('commit')
    await making
  })
  await engine.remove(ref)
  expect(await databasesOf(ref)).toEqual([])
})

it('that is under way when its project is removed leaves nothing', async () => {
  const ref = await newParent(engine, 'create table t (n int)')
  const owner = await asOwner(ref)
  owner.on('error', () => {})
  await owner.query('begin; lock table t')
  const making = engine.backups.make(backupOf(ref)).catch((error) => error)
  await vi.waitFor(async () => expect(await databasesOf(ref)).toEqual(['', '_b1']), { timeout: 60_000 })
  await engine.remove(ref)
  expect(await making).toBeInstanceOf(Error)
  expect(await leftOf(ref)).toEqual([])
  expect(await databasesOf(ref)).toEqual([])
})

describe('a restore', () => {
  let ref: string
  beforeEach(async () => {
    ref = await newParent(engine, 'create table t (n int); insert into t values (1)')
    await engine.backups.make(backupOf(ref))
    await withClient(asOwner(ref), (owner) => owner.query('insert into t values (2)'))
    await untilIdle(ref)
  })

  const rows = () =>
    withClient(asOwner(ref), async (owner) => (await owner.query('select n from t order by n')).rows.map(({ n }) => n))

  it('may be done again from the start of each step', async () => {
    await engine.backups.unpack(backupOf(ref))
    await engine.backups.unpack(backupOf(ref))
    expect(await rows()).toEqual([1, 2])
    await engine.backups.replace({ ref, id: 1 })
    await engine.backups.replace({ ref, id: 1 })
    await engine.resume(ref)
    expect(await rows()).toEqual([1])
    await restore(ref)
    expect(await databasesOf(ref)).toEqual(['', '_b1'])
  })

  it('goes on where it died: before the names change, and after', async () => {
    await engine.backups.unpack(backupOf(ref))
    await cluster.query(`alter database p_${ref} allow_connections false`)
    await cluster.query(`create database p_${ref}_replaced`)
    await engine.backups.replace({ ref, id: 1 })
    await cluster.query(`create database p_${ref}_replaced`)
    await engine.backups.replace({ ref, id: 1 })
    await engine.resume(ref)
    expect(await rows()).toEqual([1])
    expect(await databasesOf(ref)).toEqual(['', '_b1'])
  })

  it('takes nothing for a backup that is half made, and leaves the database alone', async () => {
    for (const half of [`p_${ref}_b2`, `p_${ref}_unpacked`]) {
      await cluster.query(`create database ${half}`)
      await cluster.query(`comment on database ${half} is 'This copy is not finished'`)
    }
    await expect(engine.backups.unpack(backupOf(ref, 2))).rejects.toMatchObject({ name: 'BackupGone' })
    await expect(engine.backups.unpack(backupOf(ref, 3))).rejects.toMatchObject({ name: 'BackupGone' })
    await expect(engine.backups.replace({ ref, id: 1 })).rejects.toMatchObject({ code: '3D000' })
    expect(await rows()).toEqual([1, 2])
    await engine.backups.make(backupOf(ref, 2))
    await restore(ref, 2)
    expect(await rows()).toEqual([1, 2])
  })

  it('is given up by who has lost the project meanwhile', async () => {
    const gone = async () => false
    await expect(engine.backups.make(backupOf(ref, 2), gone)).rejects.toMatchObject({ name: 'Superseded' })
    await expect(engine.backups.unpack(backupOf(ref), gone)).rejects.toMatchObject({ name: 'Superseded' })
    await expect(engine.backups.replace({ ref, id: 1 }, gone)).rejects.toMatchObject({ name: 'Superseded' })
    await expect(engine.backups.remove({ ref, id: 1 }, gone)).rejects.toMatchObject({ name: 'Superseded' })
    expect(await databasesOf(ref)).toEqual(['', '_b1'])
  })

  it('is found and removed with what it left behind', async () => {
    await engine.backups.unpack(backupOf(ref))
    const found = (await engine.backups.list()).filter((backup) => backup.ref === ref)
    expect(found).toEqual(expect.arrayContaining([{ ref, id: 1 }, { ref }]))
    for (const backup of found) await engine.backups.remove(backup)
    expect(await databasesOf(ref)).toEqual([''])
    expect(await rows()).toEqual([1, 2])
  })
})
