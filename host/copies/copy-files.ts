import { constants } from 'node:fs'
import { chown, copyFile, type FileHandle, lchown, mkdir, open, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { errorCode } from '../../dev/start-error.ts'
import { openOwned } from '../instances/files.ts'
import type { Instance, InstanceRecord } from '../instances/types.ts'
import { dataFiles, ignoreMissing } from './data-files.ts'
import { withRunningBackup } from './running-backup.ts'

interface CopyTarget {
  /** The data folder to create. Its parent must exist; its contents are removed. */
  data: string
  /** The account that owns the copy; undefined for the daemon's own. */
  account?: InstanceRecord['account']
}

/** Threads used at once: two of Node's four, so that two remain for the rest of the daemon. */
const CONCURRENCY = 2
const CHUNK_BYTES = 2 ** 20

/**
 * Copies the data folder of an instance, which is woken and keeps running. The copy recovers by itself at its first start, which
 * also flushes it to disk; until then it may be only in the page cache.
 */
export async function copyFiles(from: Instance, to: CopyTarget): Promise<void> {
  await rm(to.data, { recursive: true, force: true })
  const own = async (path: string) => to.account && chown(path, to.account.uid, to.account.gid)
  const makeFolder = async (folder: string) => {
    await mkdir(join(to.data, folder), { mode: 0o700 })
    await own(join(to.data, folder))
  }
  const copyAll = copier(from, to)
  await withRunningBackup(
    from,
    async () => {
      const { folders, files } = await dataFiles(from.paths.data)
      for (const folder of ['', ...folders]) await makeFolder(folder)
      await copyAll(files)
    },
    async ({ label, wal }) => {
      await copyAll(wal.map((name) => `pg_wal/${name}`))
      await writeFile(join(to.data, 'backup_label'), label, { mode: 0o600 })
      await own(join(to.data, 'backup_label'))
    },
  )
}

/** Returns a function that copies files. It shares blocks if the file system can, and skips files that no longer exist. */
function copier({ paths: source, record }: Instance, { data, account }: CopyTarget) {
  let canShare = true
  const share = async (from: FileHandle, name: string): Promise<boolean> => {
    const to = join(data, name)
    // The path of an open file, which the account cannot exchange. Only Linux has one.
    const path = process.platform === 'linux' ? `/proc/self/fd/${from.fd}` : join(source.data, name)
    // COPYFILE_FICLONE would copy if blocks cannot be shared, and never ends for a file that is truncated meanwhile.
    const shared = await copyFile(path, to, constants.COPYFILE_FICLONE_FORCE | constants.COPYFILE_EXCL).then(
      () => true,
      () => false,
    )
    if (shared && account) await lchown(to, account.uid, account.gid)
    return shared
  }
  /** Returns false, and copies nothing, if the file is too large for the buffer. */
  const copy = async (from: FileHandle, name: string, buffer: Buffer): Promise<boolean> => {
    if (canShare) canShare = await share(from, name)
    return canShare || copySmall(from, join(data, name), { buffer, owner: account })
  }
  const withSource = async <Value>(name: string, work: (file: FileHandle) => Promise<Value>) => {
    const file = await openOwned(join(source.data, name), record.account).catch(ignoreMissing)
    return file && work(file).finally(() => file.close())
  }
  return async (names: readonly string[]) => {
    const buffers = Array.from({ length: CONCURRENCY }, () => pageAligned(CHUNK_BYTES))
    const large: string[] = []
    const queue = names.values()
    const copyNext = async (buffer: Buffer) => {
      for (const name of queue) {
        const isCopied = await withSource(name, (from) => copy(from, name, buffer))
        if (isCopied === false) large.push(name)
      }
    }
    await Promise.all(buffers.map(copyNext))
    for (const name of large)
      await withSource(name, (from) => copyLarge(from, join(data, name), { buffers, owner: account }))
  }
}

type Owner = CopyTarget['account']

/** Memory of WebAssembly starts at a page boundary, as direct writes require. */
const pageAligned = (bytes: number): Buffer => Buffer.from(new WebAssembly.Memory({ initial: bytes / 65_536 }).buffer)

/** Returns false, and copies nothing, if the file does not fit into the buffer. */
async function copySmall(
  from: FileHandle,
  to: string,
  { buffer, owner }: { buffer: Buffer; owner: Owner },
): Promise<boolean> {
  const { bytesRead } = await from.read(buffer, 0, buffer.length, 0)
  if (bytesRead === buffer.length) return false
  await writeTo(to, CREATE, owner, (target) => writeAll(target, buffer.subarray(0, bytesRead), 0))
  return true
}

/**
 * Writes past the page cache: starting the copy would flush all cached pages at once, and every commit on the machine would wait
 * for that. Data added to the file during the copy is in the WAL.
 */
async function copyLarge(
  from: FileHandle,
  to: string,
  { buffers, owner }: { buffers: readonly Buffer[]; owner: Owner },
): Promise<void> {
  const { size } = await from.stat()
  let next = 0
  const copyChunks = async (target: FileHandle, buffer: Buffer) => {
    for (let at = next; at < size; at = next) {
      next += buffer.length
      const { bytesRead } = await from.read(buffer, 0, Math.min(buffer.length, size - at), at)
      const write = (file: FileHandle) => writeAll(file, buffer.subarray(0, bytesRead), at)
      await (bytesRead % BLOCK_BYTES === 0 ? write(target) : writeTo(to, O_WRONLY | O_NOFOLLOW, undefined, write))
    }
  }
  const copyAll = (target: FileHandle) => Promise.all(buffers.map((buffer) => copyChunks(target, buffer)))
  await writeTo(to, CREATE | O_DIRECT, owner, copyAll).catch((error) => {
    // Some file systems have no direct writes.
    if (errorCode(error) !== 'EINVAL') throw error
    next = 0
    return writeTo(to, CREATE, owner, copyAll)
  })
}

const { O_CREAT, O_DIRECT = 0, O_NOFOLLOW, O_TRUNC, O_WRONLY } = constants
const CREATE = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW
/** The length of a direct write must be a multiple of this. */
const BLOCK_BYTES = 4096

async function writeTo(
  path: string,
  flags: number,
  owner: Owner,
  work: (file: FileHandle) => Promise<unknown>,
): Promise<void> {
  const file = await open(path, flags, 0o600)
  try {
    if (owner) await file.chown(owner.uid, owner.gid)
    await work(file)
  } finally {
    await file.close()
  }
}

async function writeAll(file: FileHandle, bytes: Buffer, at: number): Promise<void> {
  for (let written = 0; written < bytes.length; ) {
    written += (await file.write(bytes, written, bytes.length - written, at + written)).bytesWritten
  }
}
