import { randomBytes } from 'node:crypto'
import { chmod, mkdir, rename, rm, stat } from 'node:fs/promises'
import { availableParallelism } from 'node:os'
import { dirname, join } from 'node:path'
import { nextAccount } from '../accounts.ts'
import { NEW, sweepLeftovers } from '../backups/restore.ts'
import { copyFiles } from '../copies/copy-files.ts'
import { prepareCopy } from '../copies/prepare-copy.ts'
import { rotateLog } from '../logs/log-file.ts'
import type { Trial } from '../settings/configuration-trial.ts'
import { requireOffered, sizeNamed } from '../settings/sizes.ts'
import { ensureTemplate } from '../template/template.ts'
import { setOwnerPassword } from './admin.ts'
import { diskOf, requireDiskSpace } from './disk.ts'
import { copyFolder, makePrivate, removeFolder, syncFolder } from './files.ts'
import { type HostFacts, type InstanceEvents, MOVING, PostgresInstance } from './instance.ts'
import { Semaphore } from './mutex.ts'
import {
  type HostFolders,
  instancesIn,
  isInstanceName,
  isReplicaName,
  listFolders,
  pathsOf,
  readRecord,
  writeRecord,
} from './record.ts'
import { removeData } from './server.ts'
import { Spares } from './spares.ts'
import {
  type Instance,
  type InstancePaths,
  type InstanceRecord,
  type Instances,
  InstanceUnavailable,
  type Programs,
  Refused,
  UnknownInstance,
} from './types.ts'

export interface InstanceSpec {
  name: string
  major?: string
  size?: string | undefined
  /** Undefined leaves the password as it is. */
  password?: string
  sleepAfterSeconds?: number | null
}

export interface CopySpec {
  name: string
  from: string
  password: string
  data: boolean
  size?: string | undefined
  sleepAfterSeconds?: number | null
}

export interface PoolOptions
  extends Pick<HostFacts, 'isDurable' | 'isArchiving' | 'memoryBytes' | 'sleepAfterSeconds' | 'limits' | 'log'> {
  folders: HostFolders
  /** Newest version first. */
  programs: readonly Programs[]
}

const DEFAULT_SIZE = 'micro'
/** Size of a new instance's files and its first writes. */
const NEW_INSTANCE_BYTES = 64 * 2 ** 20
/** Settings without background workers: a copy must not start subscriptions or pg_cron jobs in the name of its parent. */
const QUIET = { max_logical_replication_workers: '0', max_worker_processes: '0' }
/** Settings for loading data fast. The data is discarded if the server crashes. */
const BULK_LOAD = { synchronous_commit: 'off', full_page_writes: 'off', autovacuum: 'off', max_wal_size: '1GB' }
const TICK_MS = 1_000

/** All instances of this machine: creates, finds and removes them, and puts idle ones to sleep. */
export class InstancePool implements Instances {
  readonly #options: PoolOptions
  readonly #facts: HostFacts
  readonly #instances = new Map<string, PostgresInstance>()
  /** Instances that could not be opened. */
  readonly #unopened = new Set<string>()
  /** Accounts of instances that are being created or could not be opened. */
  readonly #reserved = new Set<number>()
  readonly #spares: Spares
  readonly #creations = new Set<Promise<unknown>>()
  #isClosed = false
  #clock: NodeJS.Timeout | undefined

  constructor(options: PoolOptions) {
    this.#options = options
    this.#spares = new Spares(options.folders, { isSynced: options.isDurable })
    this.#facts = {
      ...options,
      programsOf: (major) => this.programsOf(major),
      starts: new Semaphore(Math.max(4, 2 * availableParallelism())),
      events: { starting: async () => {}, started: () => {} },
    }
  }

  /** Sets the listener for starts of servers. Must be called before `open`. */
  observe(events: InstanceEvents): void {
    this.#facts.events = events
  }

  /** Reads the instances, adopts servers that still run, and starts to put idle ones to sleep. */
  async open(): Promise<void> {
    const { folders, log } = this.#options
    const { names, leftovers } = await listFolders(folders)
    for (const folder of leftovers) {
      await removeData(join(folder, 'data'))
        .then(() => removeFolder(folder))
        .catch((error) => log('leftover_not_removed', { folder, error: String(error) }))
    }
    for (const name of names) {
      await this.#openOne(name, async ({ folder, ...paths }) => {
        const record = await readRecord(folder)
        await sweepLeftovers({ folder, ...paths }, record.account)
        this.#add(record)
      })
    }
    await Promise.all(this.list().map((instance) => this.#openOne(instance.name, () => instance.adopt())))
    this.#clock = setInterval(() => this.#tick(), TICK_MS)
    this.#clock.unref()
  }

  /** Opens an instance. If that fails, its calls are refused, and the other instances are served. */
  async #openOne(name: string, open: (paths: InstancePaths) => Promise<unknown>): Promise<void> {
    const paths = pathsOf(this.#options.folders, name)
    try {
      await open(paths)
    } catch (error) {
      this.#instances.delete(name)
      this.#unopened.add(name)
      // A new instance must not get the account of this one.
      const owned = await stat(paths.wal).catch(() => undefined)
      if (owned) this.#reserved.add(owned.uid)
      this.#options.log('instance_not_opened', { instance: name, error: String(error) })
    }
  }

  find(name: string): PostgresInstance | undefined {
    if (this.#unopened.has(name))
      throw new InstanceUnavailable(`The database ${name} cannot be opened: the log of its host says why`)
    return this.#instances.get(name)
  }

  require(name: string): PostgresInstance {
    const found = this.find(name)
    if (!found) throw new UnknownInstance(name)
    // A change made now would be lost with the move.
    if (found.record.sealed === 'leaving') throw new InstanceUnavailable(MOVING)
    return found
  }

  /** Stops the instance for clients and runs `work` on a server of its data that only the daemon can reach. */
  async seal<Value>(instance: PostgresInstance, work: (draft: Instance) => Promise<Value>): Promise<Value> {
    await instance.seal()
    const { record, paths } = instance
    const draft = this.#quietDraft({ ...record, isPaused: false, sealed: undefined }, paths)
    return work(draft).finally(() => draft.shutDown())
  }

  /** Writes the configuration files of an instance that is being created. */
  async writeConfiguration(data: string, record: InstanceRecord): Promise<void> {
    const paths = { ...pathsOf(this.#options.folders, record.name), data }
    await new PostgresInstance(record, { paths, facts: this.#facts }).writeConfiguration()
  }

  /** A server for the daemon alone, without background workers. */
  #quietDraft(record: InstanceRecord, paths: InstancePaths, facts: Partial<HostFacts> = {}): PostgresInstance {
    const quiet = { ...record, settings: { ...record.settings, ...QUIET } }
    return new PostgresInstance(quiet, { paths, facts: { ...this.#facts, ...facts } })
  }

  socketOf(name: string): string {
    return pathsOf(this.#options.folders, name).socket
  }

  list(): PostgresInstance[] {
    return [...this.#instances.values()]
  }

  replicasOf(name: string): PostgresInstance[] {
    return this.list().filter(({ record }) => record.primary?.name === name)
  }

  get versions(): readonly Programs[] {
    return this.#options.programs
  }

  programsOf(major: string): Programs {
    const found = this.#options.programs.find((programs) => programs.major === major)
    if (found) return found
    const offered = this.#options.programs.map((programs) => programs.major).join(', ')
    throw new Refused([{ setting: 'version', reason: `this host has no Postgres ${major}, only ${offered}` }])
  }

  /** Creates the instance, or changes the existing one to match the request. It is running afterwards. */
  async ensure(spec: InstanceSpec): Promise<PostgresInstance> {
    const instance = this.find(spec.name) ?? (await this.#track(this.#create(spec)))
    const { sleepAfterSeconds } = spec
    if (sleepAfterSeconds !== undefined && sleepAfterSeconds !== instance.record.sleepAfterSeconds) {
      await instance.update({ sleepAfterSeconds })
    }
    if (instance.record.isPaused) await instance.resume()
    await instance.wake()
    if (spec.password !== undefined) await setOwnerPassword(instance.admin, spec.password)
    return instance
  }

  /** Makes `close` wait for a creation, whose programs would write files after the end of the daemon. */
  #track<Value>(creation: Promise<Value>): Promise<Value> {
    this.#creations.add(creation)
    return creation.finally(() => this.#creations.delete(creation))
  }

  async #create(spec: InstanceSpec): Promise<PostgresInstance> {
    if (this.#isClosed) throw new InstanceUnavailable('The host is stopping')
    if (spec.size !== undefined) requireOffered(spec.size, this.memoryBytes)
    await requireDiskSpace(instancesIn(this.#options.folders), NEW_INSTANCE_BYTES)
    return this.make(spec, async (data, record) => {
      const template = await this.#templateOf(record.major)
      const spare = await this.#spares.take(template)
      // Its files say that their server was shut down, so Postgres does not sync them when it starts.
      const options = { account: record.account, isSynced: this.isDurable, isMoved: spare !== undefined }
      await copyFolder(spare ?? template, data, options)
      this.#spares.prepare(template)
    })
  }

  /** Creates an instance whose data `fill` provides. It becomes visible when it is complete, and is asleep. */
  async make(
    spec: InstanceSpec,
    fill: (data: string, record: InstanceRecord) => Promise<void>,
    more: Partial<InstanceRecord> = {},
  ): Promise<PostgresInstance> {
    const { folders, isDurable } = this.#options
    if (!isInstanceName(spec.name) || isReplicaName(spec.name) !== (more.primary !== undefined)) {
      throw new Refused([{ setting: 'name', reason: 'must be 20 lowercase letters' }])
    }
    const record = { ...this.#recordOf(spec), ...more }
    const paths = pathsOf(folders, spec.name)
    const draft = `${paths.folder}.new-${randomBytes(4).toString('hex')}`
    try {
      // The instance's account must be able to reach the data, and other accounts must not see the folder's contents.
      await mkdir(draft, { recursive: true })
      await chmod(draft, 0o711)
      await fill(join(draft, 'data'), record)
      for (const name of ['log', 'wal']) await makePrivate(join(draft, name), record.account)
      await writeRecord(draft, record, isDurable)
      await rename(draft, paths.folder)
      if (isDurable) await syncFolder(dirname(paths.folder))
      return this.#add(record)
    } catch (error) {
      await rm(draft, { recursive: true, force: true })
      throw error
    } finally {
      if (record.account) this.#reserved.delete(record.account.uid)
    }
  }

  /**
   * Creates an instance from a consistent copy of another one's files, while that keeps running. An existing instance stays as
   * it is. Without `data` the copy has only the schema and the migration history.
   */
  async copy({ name, from, password, data, size, ...sleep }: CopySpec): Promise<PostgresInstance> {
    const found = this.find(name)
    if (found) return this.ensure({ name, password, ...sleep })
    const parent = this.require(from)
    await requireDiskSpace(instancesIn(this.#options.folders), NEW_INSTANCE_BYTES + (await parent.sizeBytes()))
    const { major, settings, access } = parent.record
    const more = { settings, access }
    const spec = { name, major, size: size ?? parent.record.size }
    await this.make(
      spec,
      async (folder, record) => {
        await copyFiles(parent, { data: folder, account: record.account })
        await this.#prepareCopy(folder, { ...record, ...more }, { data })
      },
      more,
    )
    return this.ensure({ name, password, ...sleep })
  }

  /** Prepares a copy in its draft folder, so that no client can reach it before it is independent of its parent. */
  async #prepareCopy(data: string, record: InstanceRecord, options: { data: boolean }): Promise<void> {
    const { folders } = this.#options
    const folder = dirname(data)
    for (const name of ['log', 'wal']) await makePrivate(join(folder, name), record.account)
    const paths = { ...pathsOf(folders, record.name), folder, data, log: join(folder, 'log', 'postgres.log') }
    const draft = this.#quietDraft(record, paths, { isArchiving: false })
    await prepareCopy(draft, options).finally(() => draft.shutDown())
  }

  /** A server of another version beside the instance's own, for data that is not in service yet. */
  draftOf({ record, paths }: PostgresInstance, major: string): PostgresInstance {
    const place = { ...paths, data: `${paths.data}${NEW}`, socket: `${paths.socket}${NEW}` }
    const settings = { ...record.settings, ...BULK_LOAD }
    return this.#quietDraft({ ...record, major, settings }, place, { isArchiving: false })
  }

  get isDurable(): boolean {
    return this.#options.isDurable
  }

  get memoryBytes(): number {
    return this.#options.memoryBytes
  }

  /** Returns the data folder and facts with which settings of the instance are tried before it gets them. */
  async trialOf({ record: { major } }: Pick<Instance, 'record'>): Promise<Trial> {
    return { folder: await this.#templateOf(major), facts: this.#facts }
  }

  /** Stops the server and deletes all files. */
  async remove(name: string): Promise<void> {
    const instance = this.find(name)
    if (!instance) return
    await instance.shutDown()
    const removed = `${instance.paths.folder}.gone-${randomBytes(4).toString('hex')}`
    await rename(instance.paths.folder, removed)
    if (this.isDurable) await syncFolder(dirname(removed))
    this.#instances.delete(name)
    await rm(removed, { recursive: true, force: true })
    await rm(instance.paths.socket, { recursive: true, force: true })
    await this.#facts.limits.remove(name)
  }

  /** Applies the limits of its size to a running instance, if the machine supports that. */
  async limit({ name, pid, record }: PostgresInstance): Promise<void> {
    if (pid !== undefined) await this.#facts.limits.assign({ name, size: record.size, pid })
  }

  /** The file system that contains the instances. */
  disk = () => diskOf(instancesIn(this.#options.folders))

  async close(): Promise<void> {
    clearInterval(this.#clock)
    this.#isClosed = true
    await Promise.allSettled(this.#creations)
    await Promise.all(this.list().map((instance) => instance.shutDown()))
    await this.#spares.close()
  }

  #add(record: InstanceRecord): PostgresInstance {
    const paths = pathsOf(this.#options.folders, record.name)
    this.programsOf(record.major)
    const instance = new PostgresInstance(record, { paths, facts: this.#facts })
    this.#instances.set(record.name, instance)
    return instance
  }

  #recordOf({ name, major, size = DEFAULT_SIZE, sleepAfterSeconds }: InstanceSpec): InstanceRecord {
    sizeNamed(size)
    const taken = this.list().flatMap(({ record }) => (record.account ? [record.account.uid] : []))
    const account = nextAccount([...taken, ...this.#reserved])
    if (account) this.#reserved.add(account.uid)
    return {
      name,
      major: this.programsOf(major ?? this.versions[0]?.major ?? '').major,
      size,
      isPaused: false,
      settings: {},
      access: { ssl: false, networks: null },
      sleepAfterSeconds,
      account,
      createdAt: new Date().toISOString(),
    }
  }

  #templateOf(major: string): Promise<string> {
    const { folders, isDurable } = this.#options
    return ensureTemplate({ root: folders.root, programs: this.programsOf(major), isDurable })
  }

  #tick(): void {
    const now = Date.now()
    const byPrimary = Map.groupBy(this.list(), ({ record }) => record.primary?.name)
    for (const primary of byPrimary.get(undefined) ?? [])
      this.#sleepIfIdle([primary, ...(byPrimary.get(primary.name) ?? [])], now)
    for (const instance of this.list()) {
      if (instance.pid === undefined) continue
      rotateLog(instance).catch((error) => {
        this.#facts.log('log_not_rotated', { instance: instance.name, error: String(error) })
      })
    }
  }

  /** Puts an idle primary to sleep with its replicas. The primary stops first, and waits until they have all its WAL. */
  #sleepIfIdle(group: readonly PostgresInstance[], now: number): void {
    const isRunning = group.some(({ pid }) => pid !== undefined)
    if (!isRunning || !group.every((each) => each.isIdle(now))) return
    const sleep = async () => {
      for (const each of group) await each.sleepIfIdle(now)
    }
    sleep().catch((error) => {
      this.#facts.log('instance_not_stopped', { instance: group[0]?.name, error: String(error) })
    })
  }
}
