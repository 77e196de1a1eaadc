import { constants } from 'node:fs'
import { chown, copyFile, mkdir, open, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Instance, InstanceRecord } from '../instances/types.ts'
import { dataFiles, ignoreMissing } from './data-files.ts'
import { withRunningBackup } from './running-backup.ts'

interface CopyTarget {
  /** The data folder to make; its parent folder exists. What is in it is removed. */
  data: string
  /** Owns the copy; absent for the daemon's own account. */
  account?: InstanceRecord['account']
}

/** Leaves one thread of Node's pool to the rest of the daemon. */
const CONCURRENCY = 3
const CHUNK_BYTES = 1 << 20

/**
 * Copies the data folder of an instance, which is woken if it sleeps and goes on working meanwhile. The copy recovers by itself
 * when it is first started, and is on disk from then on: until then it is only in the operating system's memory.
 */
export async function copyFiles(from: Instance, to: CopyTarget): Promise<void> {
  await rm(to.data, { recursive: true, force: true })
  const own = async (path: string) => to.account && chown(path, to.account.uid, to.account.gid)
  const makeFolder = async (folder: string) => {
    await mkdir(join(to.data, folder), { mode: 0o700 })
    await own(join(to.data, folder))
  }
  const copyAll = copier(from.paths.data, to)
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

/** Shares blocks where the file system can; what vanishes meanwhile is left out. */
function copier(source: string, { data, account }: CopyTarget) {
  let canShare = true
  const share = async (from: string, to: string): Promise<boolean> => {
    // Not COPYFILE_FICLONE: where blocks cannot be shared, it never ends for a file that is truncated meanwhile.
    const shared = await copyFile(from, to, constants.COPYFILE_FICLONE_FORCE).then(
      () => true,
      (error) => error.code === 'ENOENT',
    )
    if (shared && account) await chown(to, account.uid, account.gid).catch(ignoreMissing)
    return shared
  }
  return async (paths: readonly string[]) => {
    const queue = paths.values()
    const work = async () => {
      const buffer = Buffer.allocUnsafe(CHUNK_BYTES)
      for (const path of queue) {
        const [from, to] = [join(source, path), join(data, path)]
        if (canShare) canShare = await share(from, to)
        if (!canShare) await copyBytes(from, to, buffer, account)
      }
    }
    await Promise.all(Array.from({ length: CONCURRENCY }, work))
  }
}

async function copyBytes(from: string, to: string, buffer: Buffer, account: CopyTarget['account']): Promise<void> {
  const source = await open(from).catch(ignoreMissing)
  if (!source) return
  try {
    const target = await open(to, 'w', 0o600)
    try {
      for (let read = buffer.length; read === buffer.length; ) {
        read = (await source.read(buffer, 0, buffer.length)).bytesRead
        for (let written = 0; written < read; )
          written += (await target.write(buffer, written, read - written)).bytesWritten
      }
      if (account) await target.chown(account.uid, account.gid)
    } finally {
      await target.close()
    }
  } finally {
    await source.close()
  }
}
