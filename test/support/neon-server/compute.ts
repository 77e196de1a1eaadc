import { execFile } from 'node:child_process'
import { appendFile, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import pg from 'pg'
import { addFile, type Postgres, startPostgres } from './postgres.ts'
import { startProxy } from './proxy.ts'

const run = promisify(execFile)

interface Running {
  postgres: Postgres
  proxy: { url: string; stop(): Promise<void> }
}

/** The Postgres cluster of one branch. */
export interface Compute {
  readonly folder: string
  /** Wakes the cluster, as a connection does. */
  awake(): Promise<{ port: number; proxy: string }>
  isAwake(): boolean
  /** Runs SQL as a superuser, which no user of Neon ever is. */
  rows<Row extends pg.QueryResultRow>(sql: string, database?: string): Promise<Row[]>
  suspend(): Promise<void>
  /** Copies one moment of the cluster, while it continues to work. */
  copyTo(folder: string): Promise<Compute>
  remove(): Promise<void>
}

export function openCompute(folder: string): Compute {
  let running: Promise<Running> | undefined

  async function start(): Promise<Running> {
    const postgres = await startPostgres(folder)
    const proxy = await startProxy(postgres.port)
    return { postgres, proxy }
  }
  const wake = () => {
    running ??= start()
    return running
  }

  async function withSuperuser<Value>(database: string, work: (client: pg.Client) => Promise<Value>): Promise<Value> {
    const url = new URL((await wake()).postgres.url)
    url.pathname = `/${database}`
    const client = new pg.Client({ connectionString: url.href })
    // The cluster may be stopped meanwhile: the running query gets the error.
    client.on('error', () => {})
    await client.connect()
    try {
      return await work(client)
    } finally {
      await client.end()
    }
  }

  async function suspend() {
    const stopped = await running
    running = undefined
    await stopped?.proxy.stop()
    await stopped?.postgres.stop()
  }

  return {
    folder,
    async awake() {
      const { postgres, proxy } = await wake()
      return { port: postgres.port, proxy: proxy.url }
    },
    isAwake: () => running !== undefined,
    rows: (sql, database = 'postgres') => withSuperuser(database, async (client) => (await client.query(sql)).rows),
    suspend,
    async copyTo(target) {
      if (running === undefined) await copyFiles(folder, target)
      else await withSuperuser('postgres', (client) => backUp(client, folder, target))
      await run('cp', ['-a', `${folder}.password`, `${target}.password`])
      return openCompute(target)
    },
    async remove() {
      await suspend()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

/** Makes a cluster as of a moment, from an old one and the log that another has written since. */
export async function recover(base: Compute, log: Compute, { folder, at }: { folder: string; at: Date }) {
  // Recovery needs a transaction later than the moment, or it would search forever.
  await log.rows('select pg_current_xact_id()')
  await log.suspend()
  const recovered = await base.copyTo(folder)
  await run('cp', ['-a', `${log.folder}/pg_wal/.`, `${folder}/pg_wal`])
  const settings = [
    // The folder has all of the log.
    `restore_command = 'false'`,
    `recovery_target_time = '${at.toISOString().replace('T', ' ').replace('Z', '+00')}'`,
    `recovery_target_action = 'promote'`,
    // The cluster accepts no connection until the moment is reached.
    'hot_standby = off',
  ]
  await appendFile(join(folder, 'postgresql.auto.conf'), `${settings.join('\n')}\n`)
  await addFile(folder, 'recovery.signal', '')
  await recovered.awake()
  return recovered
}

/** Starts a cluster that follows another one and only reads. */
export async function follow(primary: Compute, folder: string): Promise<Compute> {
  const { port } = await primary.awake()
  const replica = await primary.copyTo(folder)
  const [user, password] = (await readFile(`${folder}.password`, 'utf8')).trim().split(':')
  const settings = [
    `primary_conninfo = 'host=127.0.0.1 port=${port} user=${user} password=${password}'`,
    `restore_command = ''`,
    'hot_standby = on',
  ]
  await appendFile(join(folder, 'postgresql.auto.conf'), `${settings.join('\n')}\n`)
  await addFile(folder, 'standby.signal', '')
  await replica.awake()
  return replica
}

/** Copies files that Postgres may remove meanwhile: its log, copied last, replaces them. */
async function copyFiles(from: string, to: string): Promise<void> {
  await run('cp', ['-a', from, to]).catch((error) => {
    if (!/No such file/.test(String(error.stderr))) throw error
  })
  for (const name of ['postmaster.pid', 'postmaster.opts']) await rm(join(to, name), { force: true })
}

async function backUp(client: pg.Client, from: string, to: string): Promise<void> {
  await client.query(`select pg_backup_start('branch', fast => true)`)
  await copyFiles(from, to)
  const { rows } = await client.query<{ labelfile: string }>('select labelfile from pg_backup_stop(false)')
  await run('cp', ['-a', `${from}/pg_wal/.`, `${to}/pg_wal`])
  await addFile(to, 'backup_label', rows[0]?.labelfile ?? '')
}

/**
 * More rounds of hashing than we ever request, so that passwords that came hashed are distinguished from plain ones.
 */
export const SCRAM_ITERATIONS = 5_000

/** Prepares each cluster as Neon does; the roles and their attributes are those that its documentation names. */
export async function prepareCluster(compute: Compute): Promise<void> {
  await compute.rows(`ALTER SYSTEM SET scram_iterations = ${SCRAM_ITERATIONS}`)
  // The log of each cluster is kept from its first moment on.
  await compute.rows(`ALTER SYSTEM SET wal_keep_size = '8GB'`)
  // Neon refuses passwords that are easy to guess, and so does the cluster.
  await compute.rows(`ALTER SYSTEM SET shared_preload_libraries = 'passwordcheck'`)
  await compute.rows(`CREATE ROLE neon_superuser NOLOGIN CREATEDB CREATEROLE REPLICATION BYPASSRLS
    IN ROLE pg_read_all_data, pg_write_all_data`)
  await compute.rows('GRANT pg_monitor TO neon_superuser WITH ADMIN OPTION')
  await compute.rows('GRANT CREATE ON SCHEMA public TO neon_superuser')
}

export async function createRole(
  compute: Compute,
  { name, password, database }: Record<'name' | 'password' | 'database', string>,
) {
  await compute.rows(`CREATE ROLE "${name}" LOGIN INHERIT CREATEROLE CREATEDB BYPASSRLS REPLICATION
    PASSWORD '${password}' IN ROLE neon_superuser`)
  await compute.rows(`CREATE DATABASE "${database}" OWNER "${name}"`)
}

/** Removes the rows that a branch of only the schema leaves out. */
export async function emptyTables(compute: Compute): Promise<void> {
  const databases = await compute.rows<{ datname: string }>(
    `select datname from pg_database where datallowconn and datname not in ('postgres', 'template1')`,
  )
  for (const { datname } of databases) {
    await compute.rows(
      `set session_replication_role = replica;
       do $$ declare emptied text; begin
         select string_agg(format('%I.%I', nspname, relname), ', ') into emptied
           from pg_class join pg_namespace on pg_namespace.oid = relnamespace
          where relkind in ('r', 'p') and nspname not in ('pg_catalog', 'information_schema') and nspname !~ '^pg_';
         if emptied is not null then execute 'truncate ' || emptied || ' restart identity'; end if;
       end $$`,
      datname,
    )
  }
}
