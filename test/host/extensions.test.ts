import { chmod, copyFile, cp, mkdir, mkdtemp, readFile, readlink, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { nextAccount } from '../../host/accounts.ts'
import { extensionNames, extensionsOfOperator, withOwnerExtensions } from '../../host/extensions.ts'
import type { Programs } from '../../host/instances/types.ts'
import { installedPrograms } from '../../host/programs.ts'
import { applySettings } from '../../host/settings/apply.ts'
import { readEffectiveSettings } from '../../host/settings/effective-settings.ts'
import { API_ROLES } from '../../src/engine/roles.ts'
import { openPool } from './pooled-instance.ts'
import { failure, rows } from './template-instance.ts'

const REF = 'abcdefghijklmnopqrst'
const versions = await installedPrograms(nextAccount([]))

let root = ''
beforeAll(async () => {
  root = await mkdtemp('/tmp/pilothouse-extensions-')
  await chmod(root, 0o755)
})
afterAll(() => rm(root, { recursive: true, force: true }))

/** Starts an instance of the version, and a session of its owner. */
async function open(programs: Programs) {
  const { pool, close } = await openPool([programs])
  const instance = await pool.ensure({ name: REF })
  const owner = new pg.Client({ host: instance.paths.socket, user: 'postgres', database: 'postgres' })
  await owner.connect()
  return {
    pool,
    instance,
    owner,
    async close() {
      await owner.end()
      await close()
    },
  }
}

describe.each(versions)('the owner of an instance of Postgres $major', (programs) => {
  let opened: Awaited<ReturnType<typeof open>>
  beforeAll(async () => {
    opened = await open(await withOwnerExtensions(programs, root, []))
  }, 60_000)
  afterAll(() => opened?.close())

  it('creates and uses the extensions of the distribution that only declare functions', async () => {
    const { owner } = opened
    await owner.query(
      'CREATE EXTENSION moddatetime SCHEMA extensions; CREATE EXTENSION postgres_fdw; CREATE EXTENSION dblink',
    )
    await owner.query(`CREATE TABLE notes (id int, changed_at timestamptz); CREATE TRIGGER changed BEFORE UPDATE ON notes
      FOR EACH ROW EXECUTE FUNCTION extensions.moddatetime(changed_at);
      INSERT INTO notes VALUES (1); UPDATE notes SET id = 2`)
    expect(await rows(owner, 'SELECT changed_at IS NOT NULL AS is_set FROM notes')).toEqual([{ is_set: true }])
    await owner.query('CREATE SERVER other FOREIGN DATA WRAPPER postgres_fdw; DROP EXTENSION postgres_fdw CASCADE')
    expect(await failure(owner, "SELECT dblink_connect('dbname=postgres')")).toMatch(/^2F003 password/)
  })

  it('gets no right that the script of an extension keeps for superusers, in whichever schema', async () => {
    const { owner } = opened
    await owner.query('DROP EXTENSION IF EXISTS dblink')
    for (const schema of ['public', 'extensions']) {
      await owner.query(`CREATE EXTENSION dblink SCHEMA ${schema}`)
      const text = `SELECT ${schema}.dblink_connect_u('dbname=postgres')`
      const grantees = `SELECT rolname FROM pg_roles WHERE rolname !~ '^pg_' AND NOT rolsuper
        AND has_function_privilege(oid, '${schema}.dblink_connect_u(text)', 'EXECUTE')`
      expect(await rows(owner, grantees), schema).toEqual([])
      for (const role of ['postgres', ...API_ROLES]) {
        await owner.query(`SET ROLE ${role}`)
        expect(await failure(owner, text), `${role} in ${schema}`).toMatch(/^42501 permission denied for function/)
      }
      await owner.query('SET ROLE anon')
      expect(await rows(owner, 'SELECT dblink_get_connections() AS open')).toEqual([{ open: null }])
      await owner.query('RESET ROLE; DROP EXTENSION dblink')
    }
  })

  it('creates no extension that reads files of the machine or the pages of tables', async () => {
    for (const name of ['file_fdw', 'pageinspect', 'pg_surgery']) {
      expect(await failure(opened.owner, `CREATE EXTENSION ${name}`)).toMatch(/^42501 /)
    }
  })
})

describe('POSTGRES_EXTENSIONS', () => {
  /**
   * Programs as an operator installs them, with two extensions of their own: one reserved for superusers, one loaded
   * at the start.
   */
  async function operatorPrograms(): Promise<Programs> {
    const [programs] = versions as [Programs]
    const folder = join(root, 'operator')
    const [native, extensions] = [join(programs.bin, '..'), join(folder, 'share/postgresql/extension')]
    await cp(native, folder, { recursive: true, verbatimSymlinks: true })
    const library = (name: string) => join(folder, 'lib/postgresql', `${name}.so`)
    await copyFile(library('auto_explain'), library('pg_cron'))
    const control = "default_version = '1'\nrelocatable = false\nsuperuser = true\n"
    for (const [name, schema] of [
      ['atlas', 'atlas'],
      ['pg_cron', 'cron'],
    ]) {
      await writeFile(join(extensions, `${name}.control`), control)
      await writeFile(
        join(extensions, `${name}--1.sql`),
        `CREATE SCHEMA ${schema}; CREATE TABLE ${schema}.job (username text); CREATE TABLE ${name}_places (id int PRIMARY KEY)`,
      )
    }
    return { ...programs, bin: join(folder, 'bin') }
  }

  it('lets owners create the named extensions, look into them, and change nothing there', async () => {
    const operator = await operatorPrograms()
    const programs = await withOwnerExtensions(operator, root, ['atlas', 'pg_cron'])
    expect(programs).toMatchObject({ libraries: ['pg_cron'] })
    const { owner, instance, pool, close } = await open(programs)
    await owner.query('CREATE EXTENSION atlas; CREATE EXTENSION pg_cron')
    expect(await rows(owner, 'SELECT * FROM atlas.job, cron.job')).toEqual([])
    expect(await failure(owner, "INSERT INTO cron.job VALUES ('supabase_admin')")).toMatch(/^42501 /)
    expect(await rows(owner, 'SELECT * FROM public.atlas_places')).toEqual([])
    for (const statement of [
      'INSERT INTO atlas_places VALUES (1)',
      'CREATE TABLE visits (place int REFERENCES atlas_places)',
      'CREATE TRIGGER mine BEFORE INSERT ON atlas_places EXECUTE FUNCTION suppress_redundant_updates_trigger()',
      'SET ROLE anon; DELETE FROM atlas_places',
    ]) {
      expect(await failure(owner, statement), statement).toMatch(/^42501 permission denied for table atlas_places/)
    }
    await owner.query('GRANT USAGE ON SCHEMA cron TO authenticated; GRANT SELECT ON cron.job TO authenticated')
    expect(await rows(owner, 'SHOW shared_preload_libraries')).toEqual([
      { shared_preload_libraries: 'pg_stat_statements,pg_cron' },
    ])
    await applySettings(instance, { set: { 'cron.log_statement': false } }, await pool.trialOf(instance))
    const effective = await readEffectiveSettings(instance)
    expect(effective.find(({ name }) => name === 'cron.log_statement')).toBeUndefined()
    await owner.end()
    const launchesJobs = () => instance.admin.rows(`SELECT current_setting('cron.launch_active_jobs') AS jobs`)
    for (const resume of [() => instance.resume(), () => instance.resumeByLogin(async () => {})]) {
      await instance.pause()
      await instance.whileStartable(async () => {
        expect(await launchesJobs()).toEqual([{ jobs: 'off' }])
        await resume()
        await expect.poll(launchesJobs).toEqual([{ jobs: 'on' }])
      })
    }
    await close()
    const without = await open(await withOwnerExtensions(operator, root, []))
    expect(await failure(without.owner, 'CREATE EXTENSION atlas')).toMatch(/^42501 /)
    await without.close()
  }, 60_000)

  it('finds the folders of a distribution through pg_config', async () => {
    const usr = join(root, 'usr')
    const [bin, lib, share] = [
      join(usr, 'lib/postgresql/17/bin'),
      join(usr, 'lib/postgresql/17/lib'),
      join(usr, 'share/pg/17'),
    ]
    for (const folder of [bin, lib, join(share, 'extension'), join(share, 'timezone')])
      await mkdir(folder, { recursive: true })
    for (const name of ['postgres', 'initdb']) await writeFile(join(bin, name), name, { mode: 0o755 })
    await writeFile(join(share, 'extension/postgis.control'), "default_version = '3.5'")
    await writeFile(join(share, 'extension/postgis--3.5.sql'), '')
    const source = { major: '17', version: '17.9', bin }
    await expect(extensionNames(source)).rejects.toThrow(/^Cannot find the extensions of .*pg_config/)
    await writeFile(join(bin, 'pg_config'), `#!/bin/sh\necho ${lib}\necho ${share}\n`, { mode: 0o755 })
    expect(await extensionNames(source)).toEqual(new Set(['postgis']))
    const made = await withOwnerExtensions(source, join(root, 'made'), ['postgis'])
    const top = join(made.bin, '../../../..')
    expect(await readFile(join(made.bin, 'postgres'), 'utf8')).toBe('postgres')
    expect(await readlink(join(top, 'lib/postgresql/17/lib'))).toBe(lib)
    expect(await readlink(join(top, 'share/pg/17/timezone'))).toBe(join(share, 'timezone'))
    expect(await readFile(join(top, 'share/pg/17/extension/postgis.control'), 'utf8')).toContain('\ntrusted = true\n')
    expect(await withOwnerExtensions(source, join(root, 'made'), ['postgis'])).toEqual(made)
  })

  it('may name what one of the versions has, and nothing else', async () => {
    const named = (setting: string) => {
      process.env.POSTGRES_EXTENSIONS = setting
      return extensionsOfOperator(versions).finally(() => delete process.env.POSTGRES_EXTENSIONS)
    }
    expect(await named('')).toEqual([])
    expect(await named(' ltree,,hstore ')).toEqual(['ltree', 'hstore'])
    for (const unknown of ['postgres', 'ltree;x'])
      await expect(named(`hstore,${unknown}`)).rejects.toThrow(
        `Invalid POSTGRES_EXTENSIONS: no version of Postgres on this machine has the extension "${unknown}".`,
      )
  })
})
