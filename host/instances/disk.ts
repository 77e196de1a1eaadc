import { access, constants, statfs } from 'node:fs/promises'
import { InstanceUnavailable } from './types.ts'

const MIB = 2 ** 20
/** With less free space than a WAL segment, Postgres cannot start another one. */
const FULL_BYTES = 16 * MIB

interface Disk {
  bytes: number
  /** 0 on a read-only file system. */
  freeBytes: number
  isReadOnly: boolean
}

/** The file system that contains the folder, with the space that is free for unprivileged accounts. */
export async function diskOf(folder: string): Promise<Disk> {
  const isReadOnly = await access(folder, constants.W_OK).then(
    () => false,
    (error: NodeJS.ErrnoException) => error.code === 'EROFS',
  )
  const { bsize, blocks, bavail } = await statfs(folder)
  return { bytes: bsize * blocks, freeBytes: isReadOnly ? 0 : bsize * bavail, isReadOnly }
}

/** The reason why the folder cannot be written to, in words for the project's members; undefined if it can. */
export async function diskProblem(folder: string): Promise<string | undefined> {
  const { freeBytes, isReadOnly } = await diskOf(folder)
  if (isReadOnly) return 'the disk of the database is read-only'
  return freeBytes < FULL_BYTES ? `the disk of the database is full: ${inMib(freeBytes)} MiB are free` : undefined
}

export const inMib = (bytes: number): number => Math.floor(bytes / MIB)

/** Refuses work for which the file system of the folder has no room, before it starts: all projects of a host share the disk. */
export async function requireDiskSpace(folder: string, bytes: number): Promise<void> {
  const { freeBytes } = await diskOf(folder)
  if (freeBytes >= bytes) return
  throw new InstanceUnavailable(
    `the disk of the host is too full: ${inMib(bytes)} MiB are needed, and ${inMib(freeBytes)} MiB are free`,
  )
}
