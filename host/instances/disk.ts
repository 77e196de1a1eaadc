import { access, constants, statfs } from 'node:fs/promises'

const MIB = 2 ** 20
/** Postgres cannot begin another segment of WAL with less. */
const FULL_BYTES = 16 * MIB

interface Disk {
  bytes: number
  /** None where nothing can be written. */
  freeBytes: number
  isReadOnly: boolean
}

/** The file system that holds the folder, as accounts without privileges find it. */
export async function diskOf(folder: string): Promise<Disk> {
  const isReadOnly = await access(folder, constants.W_OK).then(
    () => false,
    (error: NodeJS.ErrnoException) => error.code === 'EROFS',
  )
  const { bsize, blocks, bavail } = await statfs(folder)
  return { bytes: bsize * blocks, freeBytes: isReadOnly ? 0 : bsize * bavail, isReadOnly }
}

/** Why the folder takes no writes now, in words for the project's members. */
export async function diskProblem(folder: string): Promise<string | undefined> {
  const { freeBytes, isReadOnly } = await diskOf(folder)
  if (isReadOnly) return 'the disk of the database is read-only'
  return freeBytes < FULL_BYTES ? `the disk of the database is full: ${inMib(freeBytes)} MiB are free` : undefined
}

export const inMib = (bytes: number): number => Math.floor(bytes / MIB)
