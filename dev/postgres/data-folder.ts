import { execFile } from 'node:child_process'
import { chown, mkdir, mkdtemp, open, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { errorCode, errorMessage, StartError } from '../start-error.ts'
import { type Account, accountFor, canReach } from './account.ts'
import type { Programs } from './programs.ts'

const MAJOR_VERSION = '18'
/** Not `postgres`, whom projects make the owner of what they have. */
const SUPERUSER = 'pilothouse_admin'
const RESET = '`npm start -- --reset` starts with empty data.'

export interface DataFolder {
  folder: string
  /** The path of the folder for a server that runs in it. */
  seenByServer: string
  isNew: boolean
  /** The account that owns the files and runs the server; empty for our own. */
  owner: Account
  passwordFile: string
  log: string
}

/** Looks at the folder and says, before anything is started, whether Postgres can work with it. */
export async function dataFolder(path: string): Promise<DataFolder> {
  const folder = resolve(path)
  await makeWritable(dirname(folder))
  const isNew = await isMissingOrEmpty(folder)
  if (!isNew) await checkContent(folder)
  const owner = await accountFor(isNew ? undefined : folder)
  return {
    folder,
    // Root's own folders are closed to the account that runs Postgres, but a process may always use the folder it is in.
    seenByServer: (await canReach(owner, dirname(folder))) ? folder : '/proc/self/cwd',
    isNew,
    owner,
    passwordFile: `${folder}.password`,
    log: `${folder}.log`,
  }
}

async function makeWritable(folder: string) {
  const probe = join(folder, `.probe-${process.pid}`)
  try {
    await mkdir(folder, { recursive: true })
    await (await open(probe, 'w')).close()
    await rm(probe)
  } catch (error) {
    throw new StartError(
      `Cannot write to ${folder} (${errorCode(error)}): give this user the right, or choose another with PILOTHOUSE_DATA=<folder>.`,
    )
  }
}

async function isMissingOrEmpty(folder: string): Promise<boolean> {
  try {
    return (await readdir(folder)).length === 0
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return true
    if (errorCode(error) === 'EACCES') throw otherOwner(folder)
    throw new StartError(`${folder} is not a folder (${errorCode(error)}): move it away. ${RESET}`)
  }
}

async function checkContent(folder: string) {
  const version = await readFile(join(folder, 'PG_VERSION'), 'utf8').catch((error) => {
    if (errorCode(error) === 'EACCES') throw otherOwner(folder)
    throw new StartError(`${folder} holds no complete Postgres data: move it away, or ${RESET}`)
  })
  if (version.trim() !== MAJOR_VERSION) {
    throw new StartError(
      `${folder} is of Postgres ${version.trim()} and this is ${MAJOR_VERSION}: move it away and load a dump, or ${RESET}`,
    )
  }
  const pid = await holder(folder)
  if (pid) {
    throw new StartError(
      `${folder} is in use by Postgres, process ${pid}: stop the other start first (if it is gone: kill -INT ${pid}).`,
    )
  }
}

function otherOwner(folder: string): StartError {
  return new StartError(`${folder} belongs to another user: start as the user (or root) who made it, or delete it.`)
}

/** The running Postgres that holds the folder. */
export async function holder(folder: string): Promise<number | undefined> {
  const pid = (await readPostmaster(folder))?.pid
  if (!pid || !isAlive(pid)) return undefined
  const command = await readFile(`/proc/${pid}/comm`, 'utf8').catch(() => 'postgres')
  if (command.trim() === 'postgres') return pid
  // Postgres is gone, and its number belongs to another program now; Postgres itself would not start over that.
  await rm(join(folder, 'postmaster.pid'), { force: true })
  return undefined
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return errorCode(error) === 'EPERM'
  }
}

export async function readPostmaster(folder: string): Promise<{ pid: number; ready: boolean } | undefined> {
  const text = await readFile(join(folder, 'postmaster.pid'), 'utf8').catch(() => '')
  const lines = text.split('\n')
  const pid = Number(lines[0])
  return pid > 0 ? { pid, ready: lines[7]?.trim() === 'ready' } : undefined
}

interface Superuser {
  user: string
  password: string
}

export interface Initialise {
  data: DataFolder
  programs: Programs
  /** The superuser's password in a new cluster. */
  password: string
  durable: boolean
}

/** Makes the cluster if there is none yet, and returns who its superuser is. */
export async function initialise({ data, programs, password, durable }: Initialise): Promise<Superuser> {
  if (!data.isNew) return readSuperuser(data)
  const draft = `${data.folder}.new-${process.pid}`
  await rm(draft, { recursive: true, force: true })
  await mkdir(draft, { mode: 0o700 })
  const temporary = (await canReach(data.owner, tmpdir())) ? tmpdir() : '/tmp'
  const secret = await mkdtemp(join(temporary, 'pilothouse-'))
  try {
    const passwordFile = join(secret, 'password')
    await writeFile(passwordFile, password, { mode: 0o600 })
    if (data.owner.uid !== undefined) {
      for (const path of [draft, secret, passwordFile]) await chown(path, data.owner.uid, data.owner.gid)
    }
    const target = data.seenByServer === data.folder ? draft : data.seenByServer
    const args = [
      ...['--pgdata', target, `--username=${SUPERUSER}`, `--pwfile=${passwordFile}`, '--auth=scram-sha-256'],
      ...['--encoding=UTF8', '--locale=C', '--locale-provider=builtin', '--builtin-locale=C.UTF-8'],
      ...['--no-instructions', ...(durable ? [] : ['--no-sync'])],
    ]
    await promisify(execFile)(programs.initdb, args, { ...data.owner, cwd: draft })
    // A cluster takes its place only when it is complete, so a start that is cut off leaves no half of one.
    await writeFile(data.passwordFile, `${SUPERUSER}:${password}`, { mode: 0o600 })
    await rename(draft, data.folder)
  } catch (error) {
    const reason = isInitdbFailure(error) ? error.stderr.trim().split('\n').at(-1) : errorMessage(error)
    throw new StartError(`Cannot create the Postgres data in ${data.folder}: ${reason}`)
  } finally {
    await rm(secret, { recursive: true, force: true })
    await rm(draft, { recursive: true, force: true })
  }
  return { user: SUPERUSER, password }
}

function isInitdbFailure(error: unknown): error is { stderr: string } {
  return error instanceof Error && 'stderr' in error && typeof error.stderr === 'string' && error.stderr !== ''
}

/** Older clusters have their password alone in the file. */
async function readSuperuser({ folder, passwordFile }: DataFolder): Promise<Superuser> {
  try {
    await stat(join(folder, 'global', 'pg_control'))
    const [password = '', user = 'postgres'] = (await readFile(passwordFile, 'utf8')).trim().split(':').reverse()
    return { user, password }
  } catch (error) {
    const missing = error instanceof Error && 'path' in error ? error.path : passwordFile
    throw new StartError(`${missing} is missing, without which the data is of no use: bring it back, or ${RESET}`)
  }
}
