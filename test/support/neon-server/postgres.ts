import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { appendFile, chown, mkdir, mkdtemp, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { freePort } from '../../../dev/ports.ts'
import { type Account, canReach, initdbAccount } from '../../../host/accounts.ts'
import { exists } from '../../../host/instances/files.ts'
import { startServer } from '../../../host/instances/server.ts'
import { installedPrograms } from '../../../host/programs.ts'

/** The name is not `postgres`, which projects make the owner of their objects. */
const SUPERUSER = 'pilothouse_admin'

const SETTINGS = {
  listen_addresses: "'127.0.0.1'",
  unix_socket_directories: "''",
  max_connections: 400,
  superuser_reserved_connections: 20,
  shared_buffers: '64MB',
  fsync: 'off',
  synchronous_commit: 'off',
  full_page_writes: 'off',
  log_min_messages: 'fatal',
}

export interface Postgres {
  /** The superuser's connection string. */
  url: string
  port: number
  stop(): Promise<void>
}

/**
 * Starts a Postgres that checks passwords itself, on a port of this machine, with the folder's data or with new data.
 */
export async function startPostgres(folder: string): Promise<Postgres> {
  const account = await initdbAccount()
  const [programs] = await installedPrograms(account)
  if (!programs) throw new Error('no Postgres is installed')
  if (!(await exists(folder))) await initialize(folder, join(programs.bin, 'initdb'), account)
  const [user, password] = (await readFile(`${folder}.password`, 'utf8')).split(':')
  const port = await freePort(0, 'postgres')
  await appendFile(join(folder, 'postgresql.conf'), `port = ${port}\n`)
  const server = await startServer({ paths: { data: folder, log: `${folder}.log` }, programs, account })
  const kill = () => process.kill(server.pid, 'SIGQUIT')
  process.once('exit', kill)
  void server.ended.then(() => process.off('exit', kill))
  return { url: `postgresql://${user}:${password}@127.0.0.1:${port}/postgres`, port, stop: server.stop }
}

async function initialize(folder: string, initdb: string, account: Account): Promise<void> {
  const draft = `${folder}.new`
  const secret = await mkdtemp(join(tmpdir(), 'neon-'))
  const passwordFile = join(secret, 'password')
  const password = randomBytes(24).toString('hex')
  await mkdir(dirname(folder), { recursive: true })
  await mkdir(draft, { mode: 0o700 })
  await writeFile(passwordFile, password)
  if (account) for (const path of [draft, secret, passwordFile]) await chown(path, account.uid, account.gid)
  const args = [
    ...[
      `--pgdata=${(await canReach(account, draft)) ? draft : '/proc/self/cwd'}`,
      `--username=${SUPERUSER}`,
      `--pwfile=${passwordFile}`,
    ],
    ...['--auth=scram-sha-256', '--encoding=UTF8', '--locale=C', '--locale-provider=builtin'],
    ...['--builtin-locale=C.UTF-8', '--no-instructions', '--no-sync'],
  ]
  await promisify(execFile)(initdb, args, { ...account, cwd: draft })
  const lines = Object.entries(SETTINGS).map(([name, value]) => `${name} = ${value}\n`)
  await appendFile(join(draft, 'postgresql.conf'), lines.join(''))
  await writeFile(`${folder}.password`, `${SUPERUSER}:${password}`, { mode: 0o600 })
  await rename(draft, folder)
  await rm(secret, { recursive: true, force: true })
}

/** Writes a file that belongs to the server, like all files in its folder. */
export async function addFile(folder: string, name: string, text: string): Promise<void> {
  const file = join(folder, name)
  await writeFile(file, text)
  const { uid, gid } = await stat(join(folder, 'PG_VERSION'))
  await chown(file, uid, gid)
}
