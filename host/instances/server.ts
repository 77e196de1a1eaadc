import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { constants } from 'node:fs'
import { open, readdir, readFile, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { errorMessage } from '../../dev/start-error.ts'
import { canReach } from '../accounts.ts'
import { removeFolder, replaceFile } from './files.ts'
import { type InstancePaths, type InstanceRecord, InstanceUnavailable, type Programs } from './types.ts'

const POLL_MS = 5
/** Limit for the wait for a start. A recovery after a crash may take longer. */
const START_SECONDS_MAX = 300
/** Limit for a shutdown, which writes all changed pages to disk. */
const STOP_SECONDS_MAX = 300
const ADOPTED_POLL_MS = 250
/** The account owns the log's folder, so a link there could lead to any file. */
const LOG_FLAGS = constants.O_CREAT | constants.O_WRONLY | constants.O_APPEND | constants.O_NOFOLLOW

/** A running postmaster, started by this daemon or by one before it. */
export interface Server {
  pid: number
  /** Settles when the postmaster has ended, for whatever reason. */
  ended: Promise<void>
  stop(): Promise<void>
}

interface StartOptions {
  paths: Pick<InstancePaths, 'data' | 'log'>
  programs: Programs
  account?: InstanceRecord['account']
  /** Limit for the wait, after which the server recovers on; a recovery from the archive needs more than the default. */
  secondsMax?: number
  /** A standby counts as started while it is still recovering. */
  isStandby?: boolean
}

/** Starts a server in a session of its own, so that it survives the daemon if that is killed. */
export async function startServer({
  paths,
  programs,
  account,
  secondsMax = START_SECONDS_MAX,
  isStandby = false,
}: StartOptions): Promise<Server> {
  const log = await open(paths.log, LOG_FLAGS, 0o600)
  const { size: logStart } = await log.stat()
  // The account may be unable to enter the parents of its data folder, but a process can always use its working directory.
  const data = (await canReach(account, paths.data)) ? paths.data : '/proc/self/cwd'
  const child = spawn(join(programs.bin, 'postgres'), ['-D', data], {
    ...account,
    cwd: paths.data,
    detached: true,
    stdio: ['ignore', log.fd, log.fd],
    env: { PATH: process.env.PATH, LANG: 'C', TZ: 'UTC' },
  })
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()))
  try {
    await once(child, 'spawn')
    child.unref()
    await waitUntilReady(paths, child, { secondsMax, isStandby })
  } catch (error) {
    throw new InstanceUnavailable(await startFailure(error, paths.log, logStart))
  } finally {
    await log.close()
  }
  return { pid: Number(child.pid), ended, stop: () => stop(Number(child.pid), ended) }
}

/** Finds the postmaster that an earlier daemon has left running; undefined if there is none. */
export async function adoptServer(paths: Pick<InstancePaths, 'data'>): Promise<Server | undefined> {
  const { pid } = await readPostmaster(paths.data)
  if (!pid || !(await isPostmasterOf(pid, paths.data))) return undefined
  const ended = (async () => {
    while (await isAlive(pid)) await delay(ADOPTED_POLL_MS, undefined, { ref: false })
  })()
  return { pid, ended, stop: () => stop(pid, ended) }
}

/** Stops every server that a killed daemon has left running in a folder or below it. */
export async function stopServersIn(folder: string): Promise<void> {
  const entries = await readdir(folder, { withFileTypes: true }).catch((error: NodeJS.ErrnoException) => {
    // An interrupted restore may still be removing its drafts.
    if (error.code === 'ENOENT') return []
    throw error
  })
  if (entries.some(({ name }) => name === 'PG_VERSION')) return (await adoptServer({ data: folder }))?.stop()
  const folders = entries.filter((entry) => entry.isDirectory())
  await Promise.all(folders.map(({ name }) => stopServersIn(join(folder, name))))
}

/** Removes a data folder that an earlier daemon has left, and stops the server that may run in it. */
export async function removeData(data: string): Promise<void> {
  await (await adoptServer({ data }))?.stop()
  await removeFolder(data)
}

/** Ends the recovery of a standby after all available WAL, and resolves when the server accepts sessions. */
export async function promoteServer({ pid, ended }: Server, { data }: Pick<InstancePaths, 'data'>): Promise<void> {
  await replaceFile(join(data, 'promote'), '')
  signal(pid, 'SIGUSR1')
  let hasEnded = false
  void ended.then(() => {
    hasEnded = true
  })
  while (!(await readPostmaster(data)).isReady) {
    if (hasEnded) throw new InstanceUnavailable('Postgres ended while it was promoted')
    await delay(POLL_MS)
  }
}

interface ReadyOptions {
  secondsMax: number
  isStandby: boolean
}

async function waitUntilReady(
  paths: Pick<InstancePaths, 'data'>,
  child: ChildProcess,
  { secondsMax, isStandby }: ReadyOptions,
): Promise<void> {
  const until = Date.now() + secondsMax * 1000
  while (child.exitCode === null && child.signalCode === null) {
    const { pid, isReady, isRecovering } = await readPostmaster(paths.data)
    if (pid === child.pid && (isReady || (isStandby && isRecovering))) return
    // A server that is stopped now would begin its recovery again. Until it is ready, Postgres itself refuses clients.
    if (Date.now() > until) return
    await delay(POLL_MS)
  }
  throw new Error('it ended while it started')
}

/** The last error in Postgres's log if there is one, else our own error. */
async function startFailure(error: unknown, logFile: string, logStart: number): Promise<string> {
  const log: Buffer = await readFile(logFile).catch(() => Buffer.alloc(0))
  const text = log.subarray(logStart).toString('utf8')
  const line = text.split('\n').findLast((each) => /(FATAL|PANIC|postgres): /.test(each))
  const reason = line?.replace(/^.*?(FATAL|PANIC|postgres): +/, '')
  return `Postgres did not start: ${reason ?? errorMessage(error)}`
}

/** Requests a fast shutdown, which rolls back open transactions. If that hangs, an immediate shutdown: the next start recovers from the WAL. */
async function stop(pid: number, ended: Promise<void>): Promise<void> {
  signal(pid, 'SIGINT')
  const immediateShutdown = setTimeout(() => signal(pid, 'SIGQUIT'), STOP_SECONDS_MAX * 1000)
  await ended
  clearTimeout(immediateShutdown)
}

export function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name)
  } catch {
    // It has ended.
  }
}

/** Whether the process runs. One that has ended stays a zombie if PID 1, as in many containers, does not reap. */
export async function isAlive(pid: number): Promise<boolean> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')
  if (stat !== '') return !/\) [ZX] [^)]*$/.test(stat)
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EPERM'
  }
}

async function readPostmaster(data: string): Promise<{ pid?: number; isReady: boolean; isRecovering: boolean }> {
  const lines = (await readFile(join(data, 'postmaster.pid'), 'utf8').catch(() => '')).split('\n')
  const pid = Number(lines[0])
  const status = lines[7]?.trim()
  return { ...(pid > 0 && { pid }), isReady: status === 'ready', isRecovering: status === 'standby' }
}

/**
 * Whether the pid is that of this data's postmaster, which works in the data folder. If not, removes `postmaster.pid`, with which
 * Postgres would not start: another program has the pid by now, or the account has written that of a server which is not its own.
 */
async function isPostmasterOf(pid: number, data: string): Promise<boolean> {
  const comm = (await isAlive(pid)) && (await readFile(`/proc/${pid}/comm`, 'utf8').catch(() => undefined))
  // Not every operating system has this folder.
  if (comm === undefined) return true
  if (comm && comm.trim() === 'postgres' && (await worksIn(pid, data))) return true
  await rm(join(data, 'postmaster.pid'), { force: true })
  return false
}

async function worksIn(pid: number, data: string): Promise<boolean> {
  const paths = [`/proc/${pid}`, `/proc/${pid}/cwd`, data]
  const [owner, cwd, folder] = await Promise.all(paths.map((path) => stat(path).catch(() => undefined)))
  // Root in a container may be unable to see where the process of another account works.
  const isThere = !cwd || (cwd.dev === folder?.dev && cwd.ino === folder.ino)
  return owner !== undefined && owner.uid === folder?.uid && isThere
}
