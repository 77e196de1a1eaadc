import { access, constants, lstat, mkdir, readdir, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { diskOf, inMib } from '../host/instances/disk.ts'
import { exists, removeFolder } from '../host/instances/files.ts'
import { stopServersIn } from '../host/instances/server.ts'
import { runFolder } from '../host/run-folder.ts'
import { errorCode, StartError } from './start-error.ts'

const MIB = 1024 ** 2
/** Size of the control database, the templates and the bundle. */
const NEW_BYTES = 256 * MIB
/** Size of one WAL segment: Postgres does not start with less free. */
const FULL_BYTES = 16 * MIB

const ELSEWHERE = 'choose another folder with PILOTHOUSE_DATA=<folder>'

/** Creates the folder if it does not exist. Throws if this user cannot keep an installation in it. */
export async function openDataFolder(folder: string): Promise<void> {
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 })
    await requireOwner(folder)
    await access(folder, constants.R_OK | constants.W_OK | constants.X_OK)
  } catch (error) {
    throw error instanceof StartError ? error : await problemOf(folder, error)
  }
}

/** Postgres refuses files of another user, and that user could not use the files of this start. */
async function requireOwner(folder: string): Promise<void> {
  const secrets = await stat(join(folder, 'secrets.json')).catch((error) => {
    if (errorCode(error) === 'ENOENT') return undefined
    throw error
  })
  const uid = process.getuid?.()
  if (!secrets || uid === undefined || secrets.uid === uid) return
  throw new StartError(
    `${folder} belongs to another user (${secrets.uid}; this is ${uid}): start as that user, or ${ELSEWHERE}.`,
  )
}

async function problemOf(folder: string, error: unknown): Promise<StartError> {
  const place = await nearest(folder)
  // On a read-only file system, a recursive mkdir of Node fails with ENOENT.
  const code = (await access(place, constants.W_OK).then(() => undefined, errorCode)) ?? errorCode(error)
  switch (code) {
    case 'EROFS':
      return new StartError(`${place} is on a read-only file system: mount it for writing, or ${ELSEWHERE}.`)
    case 'EACCES':
    case 'EPERM':
      return new StartError(`This user may not write to ${place}: give it the right, or ${ELSEWHERE}.`)
    case 'EEXIST':
    case 'ENOTDIR':
      return new StartError(`${place} is not a folder: move it away, or ${ELSEWHERE}.`)
    case 'ENOSPC':
    case 'EDQUOT':
      return new StartError(`No space is left for ${folder}: free some, or ${ELSEWHERE}.`)
    default:
      return new StartError(`Cannot use ${folder} (${code}): ${ELSEWHERE}.`)
  }
}

/** The folder, or its nearest parent that exists. */
const nearest = async (folder: string): Promise<string> =>
  (await exists(folder)) || dirname(folder) === folder ? folder : nearest(dirname(folder))

/** Whether no start has created data here. Throws if this user may not look, because a closed folder is not a new one. */
export const isNewFolder = (folder: string): Promise<boolean> =>
  lstat(join(folder, 'host', 'instances')).then(
    () => false,
    (error) => {
      if (['ENOENT', 'ENOTDIR'].includes(errorCode(error) ?? '')) return true
      throw error
    },
  )

/** Refuses a start on a full disk, which would fail midway with an arbitrary error. */
export async function requireDiskSpace(folder: string): Promise<void> {
  const needed = (await isNewFolder(folder)) ? NEW_BYTES : FULL_BYTES
  const { freeBytes } = await diskOf(folder)
  if (freeBytes >= needed) return
  const figures = `${inMib(freeBytes)} MiB are free, and ${inMib(needed)} MiB are needed`
  throw new StartError(`The disk of ${folder} is full: ${figures}. Free some, or ${ELSEWHERE}.`)
}

/** Refuses a start without the bucket: the database would list objects, backups and functions whose bytes are lost. */
export async function requireBucket(folder: string): Promise<void> {
  if (await isNewFolder(folder)) return
  const bucket = join(folder, 's3')
  const entries = await readdir(bucket).catch(() => [])
  if (entries.length > 0) return
  throw new StartError(
    `The bucket ${bucket} is missing or empty: restore it, or start without the objects, backups and functions in it: npm start -- --empty-bucket.`,
  )
}

const DATA = [
  's3',
  'worker',
  'bundle',
  'dev',
  'dev.vars',
  'secrets.json',
  'credentials.json',
  'credentials.json.new',
  'supabase-profile.yaml',
  'mcp.json',
  // Deleted last: until then, a start refuses the remains of an interrupted deletion.
  'host',
]

/** Names of the installation's files in the folder, which may contain other files too. */
export async function listData(folder: string): Promise<string[]> {
  const entries = await readdir(folder)
  return DATA.filter((name) => entries.includes(name))
}

/** Deletes the installation's files, after stopping the servers that a killed start has left running. */
export async function deleteData(folder: string): Promise<void> {
  const host = join(folder, 'host')
  if (await exists(host)) {
    await stopServersIn(host)
    // The run folder may be in /tmp, where a new host would find the sockets of the old one.
    await removeFolder(await runFolder(host))
  }
  // `removeFolder` retries, because the recovery of a database may still be writing when its restore is interrupted.
  for (const name of DATA) await removeFolder(join(folder, name))
}
