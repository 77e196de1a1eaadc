import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chown, cp, mkdir, mkdtemp, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import pg from 'pg'
import { nextAccount } from '../../host/accounts.ts'
import type { Programs } from '../../host/instances/types.ts'

export interface TestInstance {
  /** Opens a session as any role. */
  session(role: string, database?: string): Promise<pg.Client>
  stop(): Promise<void>
}

/** Starts a server over a copy of the template, under an account of its own if the tests run as root. */
export async function startCopy(template: string, programs: Programs): Promise<TestInstance> {
  const account = nextAccount([])
  const folder = await mkdtemp('/tmp/pilothouse-template-')
  const data = join(folder, 'data')
  const socket = join(folder, 'run')
  await cp(template, data, { recursive: true })
  await mkdir(socket)
  if (account) {
    for (const path of [folder, data, socket]) await chown(path, account.uid, account.gid)
    for (const entry of await readdir(data, { withFileTypes: true, recursive: true })) {
      await chown(join(entry.parentPath, entry.name), account.uid, account.gid)
    }
  }
  const settings = {
    listen_addresses: '',
    unix_socket_directories: socket,
    shared_preload_libraries: 'pg_stat_statements',
    fsync: 'off',
    wal_level: 'logical',
  }
  const options = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  const server = spawn(join(programs.bin, 'postgres'), ['-D', data, ...options], {
    ...account,
    cwd: data,
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  let log = ''
  const ready = new Promise<void>((resolve, reject) => {
    server.stderr.on('data', (chunk) => {
      log += chunk
      if (log.includes('ready to accept connections')) resolve()
    })
    server.on('exit', () => reject(new Error(`Postgres did not start: ${log}`)))
  })
  await ready
  const open = new Set<pg.Client>()
  return {
    async session(role, database = 'postgres') {
      const client = new pg.Client({ host: socket, user: role, database })
      client.on('error', () => {})
      await client.connect()
      open.add(client)
      return client
    },
    async stop() {
      await Promise.all([...open].map((client) => client.end()))
      const exited = once(server, 'exit')
      server.kill('SIGINT')
      await exited
      await rm(folder, { recursive: true, force: true })
    },
  }
}

export const rows = async (client: pg.Client, text: string) => (await client.query(text)).rows

/** Returns the code and the message of the error that the statements end with, and undoes them. */
export async function failure(client: pg.Client, text: string): Promise<string> {
  try {
    await client.query(text)
    return 'succeeded'
  } catch (error) {
    return `${(error as pg.DatabaseError).code} ${(error as Error).message}`
  } finally {
    await client.query('ROLLBACK; RESET ROLE; RESET ALL')
  }
}
