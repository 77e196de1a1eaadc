import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { constants } from 'node:fs'
import { chmod, chown, type FileHandle, lstat, mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { promisify } from 'node:util'
import type { InstanceRecord } from './types.ts'

const run = promisify(execFile)

type Account = InstanceRecord['account']

const IS_MACOS = process.platform === 'darwin'

/** Closes a folder to all but the account, by default the daemon's own. Creates it if it does not exist. */
export async function makePrivate(folder: string, account?: Account): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o700 })
  await chmod(folder, 0o700)
  if (account) await chown(folder, account.uid, account.gid)
}

/** Removes a folder. A program that a killed daemon has started, such as `initdb`, may write into it for some moments more. */
export const removeFolder = (folder: string): Promise<void> =>
  rm(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 })

/**
 * Copies a folder's contents for the account, without copying bytes where the file system can share them. With `isMoved`, the folder
 * itself becomes the account's. With `isSynced`, the result survives a crash of the machine. One shell runs the programs: for each
 * that the daemon itself starts, Linux first copies the daemon's page tables, which stops it for 10 to 30 ms.
 */
export async function copyFolder(
  from: string,
  to: string,
  { account, isSynced, isMoved = false }: { account: Account; isSynced: boolean; isMoved?: boolean },
): Promise<void> {
  const steps = [
    isMoved ? 'mv "$1" "$2"' : `cp -R ${IS_MACOS ? '-c' : '--reflink=auto'} "$1" "$2"`,
    ...(account ? [`chown -R ${account.uid}:${account.gid} "$2"`] : []),
    ...(isSynced ? [IS_MACOS ? 'sync' : 'sync -f "$2"'] : []),
  ]
  await run('sh', ['-c', steps.join(' && '), 'sh', from, to])
}

const STATS_AT_ONCE = 64

/**
 * The size of a folder on disk, in bytes. Files that disappear meanwhile are not counted. Sizes are read many at once: one after the
 * other they take four times the processor time, because Node wakes a thread for each.
 */
export async function folderBytes(folder: string): Promise<number> {
  const entries = await readdir(folder, { withFileTypes: true, recursive: true }).catch(() => [])
  const files = entries.filter((entry) => entry.isFile())
  let bytes = 0
  for (let first = 0; first < files.length; first += STATS_AT_ONCE) {
    const next = files.slice(first, first + STATS_AT_ONCE)
    const found = await Promise.all(
      next.map(({ parentPath, name }) => stat(join(parentPath, name)).catch(() => undefined)),
    )
    for (const each of found) bytes += (each?.blocks ?? 0) * 512
  }
  return bytes
}

/** The time of the last change of a file directly in the folder, in ms. */
export async function newestChange(folder: string): Promise<number> {
  const names = await readdir(folder)
  const times = await Promise.all(
    names.map((name) =>
      stat(join(folder, name)).then(
        ({ mtimeMs }) => mtimeMs,
        () => 0,
      ),
    ),
  )
  return Math.max(0, ...times)
}

export const exists = (path: string): Promise<boolean> =>
  lstat(path).then(
    () => true,
    () => false,
  )

/** Gives a folder and all in it to the account. `chown -R` follows no links, even if the account makes them meanwhile. */
export async function ownAll(folder: string, account: Account): Promise<void> {
  if (account) await run('chown', ['-R', `${account.uid}:${account.gid}`, folder])
}

/**
 * Opens a file in a folder of the account, and follows no link to another file. If `account` is given, the file must belong to it,
 * because a folder on the way may be a link, too. A pipe is refused: reading it would block a thread.
 */
export async function openOwned(path: string, account?: Account): Promise<FileHandle> {
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
  const found = await file.stat().catch(() => undefined)
  if (found?.isFile() && (!account || found.uid === account.uid)) return file
  await file.close()
  throw new Error(`${basename(path)} is not a file of its instance`)
}

/** Reads a text file like `openOwned`. */
export async function readOwned(path: string, account?: Account): Promise<string> {
  const file = await openOwned(path, account)
  return file.readFile('utf8').finally(() => file.close())
}

/** Makes all files of a folder survive a crash of the machine. Syncing their whole file system takes a third of the time of many `fsync`s. */
export async function syncFiles(folder: string): Promise<void> {
  // On macOS, `sync` has no options and syncs all file systems.
  await run('sync', IS_MACOS ? [] : ['-f', folder])
}

/** Makes changes of the folder's entries survive a crash of the machine. */
export async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder)
  await handle.sync().finally(() => handle.close())
}

/**
 * Replaces a file atomically: a crash leaves the old or the new one. Unless `isSynced` is false, that is also true for a crash of the
 * machine. It follows no links, because an account that owns the folder could lead it to any file of the machine.
 */
export async function replaceFile(
  path: string,
  text: string,
  account?: Account,
  { isSynced = true } = {},
): Promise<void> {
  const draft = `${path}.${randomBytes(8).toString('hex')}.tmp`
  // Exclusive creation fails for a link, too.
  const file = await open(draft, 'wx', 0o600)
  try {
    await file.writeFile(text)
    if (account) await file.chown(account.uid, account.gid)
    if (isSynced) await file.sync()
    await rename(draft, path)
    if (isSynced) await syncFolder(dirname(path))
  } catch (error) {
    await rm(draft, { force: true })
    throw error
  } finally {
    await file.close()
  }
}
