import { readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { folderBytes } from '../instances/files.ts'
import { KeyedMutex, Semaphore } from '../instances/mutex.ts'
import { type Instance, type Instances, Refused, UnknownInstance } from '../instances/types.ts'
import { Archive } from './archive.ts'
import { backupIds, keysOf, listBackups, makeBackup, orphanedBackups, prefixOf, removeBackup } from './base-backup.ts'
import { readStoppedLsn } from './control-file.ts'
import { drillPlan, readContents } from './drill.ts'
import { archivedWindow, byWal, isNeeded, planBackup, planMoment } from './plan.ts'
import { requireVersion } from './recovery.ts'
import { restoreTo, type UndoOptions, undoRestore } from './restore.ts'
import type { ArchiveStore } from './store.ts'
import { archiveSpool, flushWal, hasUnarchivedWal, listBundles, listTimelines } from './wal.ts'

interface BackupsOptions {
  store: ArchiveStore
  /** The key that seals the archive, of at least 32 bytes. Nothing else opens the backups made with it. */
  key: Uint8Array
  instances: Instances
  log(event: string, fields: Record<string, unknown>): void
  /** Limit for the WAL of each instance that waits for upload. */
  spoolBytesMax?: number
  tickMs?: number
}

interface ArchiveStatus {
  /** `stopped`: WAL was discarded to save the disk, so moments can be restored again only after the next backup. */
  state: 'archiving' | 'failing' | 'stopped'
  error?: string
  spoolBytes: number
}

const SPOOL_BYTES_MAX = 2 ** 30
const TICK_MS = 10_000
const UPLOADS_AT_ONCE = 4
const CLOCK_SKEW_MS_MAX = 5_000
const DAY_MS = 24 * 3_600_000

export type Backups = ReturnType<typeof createBackups>

/**
 * Backups of instances in an archive, and restores from it. Every operation may be repeated after a crash at any point. Those that
 * the API declares as mutations must not run at the same time for one instance.
 */
export function createBackups({ store, key, instances, log, ...bounds }: BackupsOptions) {
  const { spoolBytesMax = SPOOL_BYTES_MAX, tickMs = TICK_MS } = bounds
  const archive = new Archive(store, key)
  const statuses = new Map<string, ArchiveStatus>()
  const spools = new KeyedMutex()
  const find = (name: string): Instance => {
    const instance = instances.find(name)
    if (!instance) throw new UnknownInstance(name)
    return instance
  }
  const withSpoolLock = <Value>(name: string, work: () => Promise<Value>) => spools.run(name, work)
  const flush = (instance: Instance) => withSpoolLock(instance.name, () => flushWal(archive, instance))

  async function archiveInstance(instance: Instance): Promise<void> {
    const { name } = instance
    await withSpoolLock(name, async () => {
      const upload = uploads.run(() => archiveSpool(archive, instance))
      const status = await upload.then(
        (): ArchiveStatus => ({ state: stateOf(instance, 'archiving'), spoolBytes: 0 }),
        async (error): Promise<ArchiveStatus> => {
          const spoolBytes = await boundSpool(instance)
          return { state: stateOf(instance, 'failing'), error: String(error), spoolBytes }
        },
      )
      setStatus(name, status)
    })
  }

  function setStatus(name: string, status: ArchiveStatus): void {
    const before = statuses.get(name)
    statuses.set(name, status)
    const hasChanged = status.state !== (before?.state ?? 'archiving') || status.error !== before?.error
    if (hasChanged) log('wal_archive', { instance: name, ...status })
  }

  /** Discards the WAL that waits if there is too much of it. Returns the bytes that still wait. */
  async function boundSpool(instance: Instance): Promise<number> {
    const bytes = await folderBytes(instance.paths.wal)
    if (bytes <= spoolBytesMax) return bytes
    await discardWal(instance)
    return 0
  }

  /** Bounds the spool of an instance while its pass runs: a bucket that hangs fails it after minutes, and a slow one never does. */
  async function boundSpoolOfPass(instance: Instance): Promise<void> {
    const spoolBytes = await boundSpool(instance)
    const { error } = statuses.get(instance.name) ?? {}
    const state = stateOf(instance, 'archiving')
    if (state === 'stopped') setStatus(instance.name, { state, spoolBytes, ...(error !== undefined && { error }) })
  }

  /** Archives all WAL that the server has written, and returns its end. Wakes the server only if it stopped with WAL not archived. */
  async function archiveWritten(instance: Instance): Promise<{ lsn: string; isStopped: boolean }> {
    const readStopped = async () => {
      if (await hasUnarchivedWal(instance.paths.data)) return undefined
      await archiveSpool(archive, instance)
      return { lsn: await readStoppedLsn(instance.paths.data), isStopped: true }
    }
    // A flush wakes the instance under the lock of the spool, so that lock must be taken first here, too.
    const stopped = await withSpoolLock(instance.name, () => instance.unlessRunning(readStopped))
    if (stopped) return stopped
    if (instance.record.isPaused)
      throw new Refused([{ setting: 'at', reason: 'the project was paused before all of its WAL was archived' }])
    return { lsn: await flush(instance), isStopped: false }
  }

  /** Resumes the archive if its last gap is before this backup, which a repeated request may have made earlier. */
  async function endGap(instance: Instance, stoppedAt: string): Promise<void> {
    const { walDiscardedAt } = instance.record
    if (walDiscardedAt === undefined || walDiscardedAt >= stoppedAt) return
    await instance.update({ walDiscardedAt: undefined })
    statuses.delete(instance.name)
  }

  const archiveTick = () => Promise.all(instances.list().map(archiveInstance))

  /** Archives an instance in the background, unless its last pass is still running. */
  function startPass(instance: Instance): void {
    const { name } = instance
    const logFailure = (error: unknown) => log('wal_archive_failed', { instance: name, error: String(error) })
    if (passes.has(name)) return void boundSpoolOfPass(instance).catch(logFailure)
    const pass = archiveInstance(instance)
      .catch(logFailure)
      .finally(() => passes.delete(name))
    passes.set(name, pass)
  }

  const uploads = new Semaphore(UPLOADS_AT_ONCE)
  /** The running pass of each instance. Passes are independent, so that no instance delays another. */
  const passes = new Map<string, Promise<void>>()
  const clock = setInterval(() => instances.list().forEach(startPass), tickMs)
  clock.unref()

  async function window(name: string): Promise<{ earliest: Date; latest: Date } | undefined> {
    const instance = find(name)
    const found = await archivedWindow(archive, name, instance.programs.major)
    const { state = stateOf(instance, 'archiving') } = statuses.get(name) ?? {}
    if (!found || state !== 'archiving' || instance.state() === 'failed') return found
    // The window ends now, because a restore first archives what the server has written.
    return { earliest: found.earliest, latest: new Date() }
  }

  return {
    /** A temporary backup does not end a gap of the archive: older backups that outlast it still have the gap after them. */
    async make(name: string, id: string, { isTemporary = false } = {}) {
      const instance = find(name)
      const manifest = await makeBackup(archive, instance, id)
      if (!isTemporary) await withSpoolLock(name, () => endGap(instance, manifest.stoppedAt))
      return manifest
    },
    list: (name: string) => listBackups(archive, name),
    ids: (name: string) => backupIds(archive, name),
    remove: (name: string, id: string) => removeBackup(archive, name, id),
    /** The moments that can be restored; undefined without a backup. */
    window,
    status: (name: string) => statuses.get(name),
    /** Archives everything that has been committed. */
    flush: (name: string) => flush(find(name)),
    archiveTick,
    archive,
    /** Archives everything that has been committed, through another server of the same data. Returns the end of the commits. */
    flushFrom: flush,

    /** Keys of the archived objects that restore the instance to a moment that has just passed. */
    async moment(name: string, at: Date): Promise<{ backup: string; keys: string[] }> {
      await waitUntilPast(at)
      const instance = find(name)
      if (!instance.record.isArchived)
        throw new Refused([{ setting: 'at', reason: 'there is no backup of this project' }])
      const { base, bundles } = await planMoment(archive, name, at, byWal(await archiveWritten(instance)))
      requireVersion(instance, base)
      const timelines = (await listTimelines(archive, name)).map(({ key }) => key)
      const keys = [...keysOf(name, base.id), ...bundles.map(({ key }) => key), ...timelines]
      return { backup: base.id, keys }
    },

    /** Restores the instance to a backup, or to a moment of the window. */
    async restore(name: string, to: { backup: string } | { at: Date }, id?: string): Promise<void> {
      const instance = find(name)
      if ('at' in to && to.at.getTime() > Date.now()) {
        throw new Refused([{ setting: 'at', reason: 'must not be in the future' }])
      }
      // A flush fails if the server does not start: the restore then uses what is archived already.
      await flush(instance).catch((error) => log('wal_not_flushed', { instance: name, error: String(error) }))
      const plan = 'at' in to ? await planMoment(archive, name, to.at) : await planBackup(archive, name, to.backup)
      await restoreTo(archive, instance, plan, id)
      await archiveInstance(instance)
    },

    undo: async (name: string, options?: UndoOptions) => undoRestore(archive, find(name), options),

    /** Restores the archive into a temporary server and compares that with the instance. */
    async drill(name: string) {
      const instance = find(name)
      if (instance.record.isPaused) {
        const newest = (await listBackups(archive, name)).at(-1)
        return drillPlan(archive, instance, await planBackup(archive, name, newest?.id ?? ''), undefined)
      }
      const before = await readContents(await instance.connect())
      const at = new Date()
      await flush(instance)
      const after = await readContents(await instance.connect())
      return drillPlan(archive, instance, await planMoment(archive, name, at), { before, after })
    },

    /** Removes WAL that no backup needs, and what unfinished backups have left. */
    async sweep(name: string): Promise<void> {
      const [oldest] = await listBackups(archive, name)
      const bundles = (await listBundles(archive, name)).filter((bundle) => !(oldest && isNeeded(bundle, oldest)))
      const dayAgo = new Date(Date.now() - DAY_MS)
      await store.delete([...bundles.map((bundle) => bundle.key), ...(await orphanedBackups(archive, name, dayAgo))])
      await store.dropUploads(prefixOf(name), dayAgo)
    },

    /** Removes all backups and WAL of a deleted instance. Waits for the end of an upload that began before the deletion. */
    removeArchive: (name: string): Promise<void> =>
      withSpoolLock(name, async () => {
        await store.delete((await store.list(prefixOf(name))).map((object) => object.key))
        await store.dropUploads(prefixOf(name), new Date())
        statuses.delete(name)
      }),

    async stop(): Promise<void> {
      clearInterval(clock)
      await Promise.all(passes.values())
    },
  }
}

/** Waits until the moment has passed: clocks of machines differ slightly. */
async function waitUntilPast(at: Date): Promise<void> {
  const ms = at.getTime() - Date.now()
  if (ms > CLOCK_SKEW_MS_MAX) throw new Refused([{ setting: 'at', reason: 'must not be in the future' }])
  if (ms >= 0) await delay(ms + 1)
}

const stateOf = ({ record }: Instance, otherwise: ArchiveStatus['state']): ArchiveStatus['state'] =>
  record.walDiscardedAt === undefined ? otherwise : 'stopped'

/** Deletes the WAL in the spool, but not the timeline histories: they are small, and every later restore needs them. */
async function discardWal(instance: Instance): Promise<void> {
  const folder = instance.paths.wal
  const files = (await readdir(folder)).filter((file) => !file.endsWith('.history'))
  // Taken after the files are listed: a backup that ends later contains all of them that it needs.
  const record = { walDiscardedAt: new Date().toISOString() }
  const isRecorded = await instance.update(record).then(
    () => true,
    () => false,
  )
  for (const file of files) await rm(join(folder, file), { force: true })
  // A full disk may have room for the record only now.
  if (!isRecorded) await instance.update(record)
}
