import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { chmod, lstat, mkdir, rm } from 'node:fs/promises'
import { connect, createServer } from 'node:net'
import { dirname, join, resolve } from 'node:path'
import { canReach, nextAccount } from './accounts.ts'
import { exists } from './instances/files.ts'

/** Limit for the folder's path: the path of a unix socket has at most 107 bytes. The socket of a drill has the longest path. */
const BYTES_MAX = 107 - '/abcdefghijklmnopqrst.drill/.s.PGSQL.5432'.length

/** The folder of a host's sockets: `run` in its own folder, or one in /tmp if that is too long or closed to the accounts. */
async function chooseRunFolder(root: string): Promise<string> {
  const own = join(resolve(root), 'run')
  const name = `pilothouse-${createHash('sha256').update(own).digest('hex').slice(0, 12)}`
  const isReachable = await canReach(nextAccount([]), await nearest(own))
  return isReachable && Buffer.byteLength(own) <= BYTES_MAX ? own : join('/tmp', name)
}

/** The folder, or its nearest parent that exists. */
async function nearest(folder: string): Promise<string> {
  return (await exists(folder)) ? folder : nearest(dirname(folder))
}

/** Creates the folder of a host's sockets. */
export async function runFolder(root: string): Promise<string> {
  const folder = await chooseRunFolder(root)
  await mkdir(folder, { recursive: true, mode: 0o711 })
  // Any user can create a folder in /tmp.
  if ((await lstat(folder)).uid !== process.getuid?.()) throw new FolderInUse(`${folder} belongs to another user`)
  await chmod(folder, 0o711)
  return folder
}

/** Whether a daemon is running for this data folder. */
export const isHostRunning = async (root: string): Promise<boolean> =>
  isServed(join(await runFolder(root), 'host.sock'))

/** The folder is used by another daemon, or belongs to another user. */
export class FolderInUse extends Error {
  override name = 'FolderInUse'
}

/** Prevents a second daemon from using the folder. The claim ends with this process, even if it is killed. */
export async function claimFolder(root: string, run: string): Promise<() => Promise<void>> {
  const path = join(run, 'host.sock')
  if (await isServed(path)) throw new FolderInUse(`Another host uses ${root}: stop it first`)
  await rm(path, { force: true })
  const server = createServer((socket) => socket.destroy())
  server.listen(path)
  await once(server, 'listening')
  server.unref()
  return async () => {
    server.close()
    await rm(path, { force: true })
  }
}

function isServed(path: string): Promise<boolean> {
  return new Promise((done) => {
    const socket = connect(path)
    socket.once('connect', () => {
      done(true)
      socket.destroy()
    })
    socket.once('error', () => done(false))
  })
}
