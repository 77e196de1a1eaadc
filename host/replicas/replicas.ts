import { rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { copyFiles } from '../copies/copy-files.ts'
import { requireDiskSpace } from '../instances/disk.ts'
import { exists, replaceFile, syncFiles } from '../instances/files.ts'
import type { PostgresInstance } from '../instances/instance.ts'
import type { InstancePool } from '../instances/instances.ts'
import { KeyedMutex } from '../instances/mutex.ts'
import { isReplicaName } from '../instances/record.ts'
import { type Instance, type InstanceRecord, InstanceUnavailable, Refused } from '../instances/types.ts'
import { activate } from '../settings/apply.ts'
import { openRelay } from './relay.ts'
import {
  BOUNDS,
  createSlot,
  dropSlot,
  listSlots,
  newSlotName,
  type PrimaryFacts,
  readPrimaryFacts,
  readStreams,
  requireSender,
} from './slots.ts'

export interface ReplicaState {
  id: string
  /** `running` only while it follows its primary; `starting` while it is created or not connected. */
  state: ReturnType<Instance['state']>
  lag_bytes: number | null
  lag_seconds: number | null
}

interface Parts {
  pool: InstancePool
  log(event: string, fields: Record<string, unknown>): void
}

const TICK_MS = 5_000
/** File in the data folder of a complete replica; it is written last. */
const SIGNAL = 'standby.signal'

/** Standbys of the instances of this host. Each is an instance of its own that gets the size and settings of its primary. */
export class Replicas {
  readonly #pool: InstancePool
  readonly #log: Parts['log']
  readonly #mutex = new KeyedMutex()
  readonly #relays = new Map<string, Promise<() => void>>()
  readonly #copying = new Set<string>()
  #clock: NodeJS.Timeout | undefined

  constructor({ pool, log }: Parts) {
    this.#pool = pool
    this.#log = log
    pool.observe({
      starting: (instance) => this.#prepareStart(instance),
      started: (instance) => this.#onStarted(instance),
    })
  }

  /** Updates all replicas to match their primaries, now and periodically. */
  open(): void {
    const followAll = (isFirst: boolean) => {
      const names = this.#pool.list().flatMap(({ record }) => record.primary?.name ?? (isFirst ? record.name : []))
      for (const name of new Set(names)) void this.follow(name)
    }
    followAll(true)
    this.#clock = setInterval(followAll, TICK_MS, false).unref()
  }

  async close(): Promise<void> {
    clearInterval(this.#clock)
    this.#clock = undefined
    for (const relay of this.#relays.values()) (await relay)()
  }

  /** Adds a replica; resolves when it serves reads, or waits for a transaction of the primary before it can. */
  async add(name: string, id: string): Promise<void> {
    if (!isReplicaName(id) || !id.startsWith(`${name}-`)) {
      throw new Refused([{ setting: 'replica', reason: `${id} is not the name of a replica of ${name}` }])
    }
    const primary = this.#pool.require(name)
    await this.#mutex.run(name, async () => {
      if (!this.#pool.find(id)) await this.#make(primary, id)
      await this.#follow(name)
    })
    await this.#pool.require(id).wake()
  }

  async remove(name: string, id: string): Promise<void> {
    await this.#mutex.run(name, async () => {
      const replica = this.#pool.find(id)
      const primary = this.#pool.find(name)
      if (replica?.record.primary?.name !== name) return
      await this.#discard(replica)
      if (primary) await dropSlot(primary, replica.record.primary.slot)
    })
  }

  /** Lists the replicas of an instance; this wakes neither them nor their primary. */
  async list(name: string): Promise<ReplicaState[]> {
    const replicas = this.#pool.replicasOf(name)
    const primary = this.#pool.find(name)
    if (replicas.length === 0 || !primary) return []
    const rows = await readStreams(primary).catch(() => undefined)
    return replicas.map((replica) => {
      const stream = rows?.find(({ slot }) => slot === replica.record.primary?.slot)
      const { bytes = null, seconds = null } = stream ?? {}
      const isBehind = replica.state() === 'running' && primary.state() === 'running' && !stream
      const state = isBehind || this.#copying.has(replica.name) ? 'starting' : replica.state()
      return { id: replica.name, state, lag_bytes: bytes, lag_seconds: seconds }
    })
  }

  /** Updates the replicas of an instance to match it; removes them if it was removed. */
  async follow(name: string): Promise<void> {
    await this.#mutex.run(name, () => this.#follow(name)).catch((error) => this.#logFailure(name, error))
  }

  async #follow(name: string): Promise<void> {
    const replicas = this.#pool.replicasOf(name)
    const primary = this.#pool.find(name)
    if (!primary) {
      for (const replica of replicas) await this.#discard(replica)
      return
    }
    if (primary.record.isPaused) {
      for (const replica of replicas) if (!replica.record.isPaused) await replica.pause()
      return
    }
    if (primary.state() !== 'running') {
      for (const replica of replicas) await this.#copySettings(replica, primary, {})
      return
    }
    const used = replicas.map(({ record }) => record.primary?.slot)
    const slots = await listSlots(primary)
    for (const slot of slots.filter((each) => !used.includes(each))) await dropSlot(primary, slot)
    if (replicas.length === 0) return
    const { bounds, lost } = await readPrimaryFacts(primary)
    const valid = new Set(slots.filter((slot) => !lost?.includes(slot)))
    for (const replica of replicas) {
      await this.#align(replica, primary, { valid, bounds }).catch((error) => this.#logFailure(replica.name, error))
    }
  }

  async #align(replica: PostgresInstance, primary: PostgresInstance, { valid, bounds }: Alignment): Promise<void> {
    const isChanged = await this.#copySettings(replica, primary, bounds)
    if (this.#copying.has(replica.name)) return
    const isComplete = await exists(join(replica.paths.data, SIGNAL))
    // Without a valid slot the replica cannot follow: the primary was restored, or has removed WAL that the replica needs.
    if (!isComplete || !valid.has(replica.record.primary?.slot ?? '')) return void this.#copyAgain(replica, primary)
    if (isChanged) await activate(replica, { restart: true })
    else if (replica.state() !== 'running') await replica.wake()
  }

  /** Copies size and settings of the primary. Returns whether the server's configuration has changed. */
  async #copySettings(replica: PostgresInstance, primary: PostgresInstance, bounds: Bounds): Promise<boolean> {
    const { settings: own, ...before } = replica.record
    const { size, sleepAfterSeconds } = primary.record
    const grown = BOUNDS.map((name) => [name, String(Math.max(Number(own[name] ?? 0), Number(bounds[name] ?? 0)))])
    const settings = { ...primary.record.settings, ...Object.fromEntries(grown.filter(([, value]) => value !== '0')) }
    const shared = { size, isPaused: false, ...(sleepAfterSeconds !== undefined && { sleepAfterSeconds }) }
    if (isDeepStrictEqual({ ...before, settings: own }, { ...before, ...shared, settings })) return false
    await replica.update({ ...shared, settings })
    return before.size !== size || !isDeepStrictEqual(own, settings)
  }

  async #make(primary: PostgresInstance, id: string): Promise<void> {
    const { major, size, settings } = primary.record
    const slot = newSlotName(id)
    await requireSender(primary, this.#pool.replicasOf(primary.name).length)
    await requireRoomForCopy(primary)
    await createSlot(primary, slot)
    const more = { settings, primary: { name: primary.name, slot } }
    try {
      await this.#pool.make({ name: id, major, size }, (data, record) => this.#copy(primary, data, record), more)
    } catch (error) {
      await dropSlot(primary, slot)
      throw error
    }
  }

  async #copy(primary: PostgresInstance, data: string, { account }: InstanceRecord): Promise<void> {
    await copyFiles(primary, { data, ...(account && { account }) })
    if (this.#pool.isDurable) await syncFiles(data)
    await replaceFile(join(data, SIGNAL), '', account)
  }

  /** Copies the primary again. It runs in the background, as it may take long; the next tick retries if it fails. */
  async #copyAgain(replica: PostgresInstance, primary: PostgresInstance): Promise<void> {
    this.#copying.add(replica.name)
    try {
      await requireRoomForCopy(primary, await replica.sizeBytes())
      const slot = newSlotName(replica.name)
      await replica.update({ primary: { name: primary.name, slot } })
      await rm(join(replica.paths.data, SIGNAL), { force: true })
      await replica.whileStopped(async () => {
        await createSlot(primary, slot)
        await this.#copy(primary, replica.paths.data, replica.record)
      })
      setImmediate(() => this.follow(primary.name))
    } catch (error) {
      this.#logFailure(replica.name, error)
    } finally {
      this.#copying.delete(replica.name)
    }
  }

  async #discard({ name }: PostgresInstance): Promise<void> {
    await this.#pool.remove(name)
    const relay = this.#relays.get(name)
    this.#relays.delete(name)
    ;(await relay)?.()
  }

  /** Wakes the primary first, so that the replica serves no stale data. Refuses an incomplete replica, which would start as a primary. */
  async #prepareStart(instance: PostgresInstance): Promise<void> {
    const { primary } = instance.record
    if (!primary) return
    if (!(await exists(join(instance.paths.data, SIGNAL))))
      throw new InstanceUnavailable('The replica is being created')
    await this.#pool.require(primary.name).wake()
    await this.#relay(instance, primary.name)
  }

  #onStarted(instance: PostgresInstance): void {
    const { name, record } = instance
    if (record.primary) {
      this.#relay(instance, record.primary.name).catch((error) => this.#logFailure(name, error))
      this.#wake(record.primary.name).catch((error) => this.#logFailure(name, error))
    } else if (this.#clock && this.#pool.replicasOf(name).length > 0) void this.follow(name)
  }

  async #wake(name: string): Promise<void> {
    await this.#pool.find(name)?.wake()
  }

  #relay(replica: PostgresInstance, primary: string): Promise<() => void> {
    const relay = this.#relays.get(replica.name) ?? openRelay(replica, () => this.#pool.find(primary))
    this.#relays.set(replica.name, relay)
    relay.catch(() => this.#relays.delete(replica.name))
    return relay
  }

  #logFailure(name: string, error: unknown): void {
    this.#log('replica_failed', { instance: name, error: error instanceof Error ? error.message : String(error) })
  }
}

type Bounds = PrimaryFacts['bounds']

interface Alignment {
  valid: ReadonlySet<string>
  bounds: Bounds
}

/** Requires free space for a copy of the primary; `freedBytes` is the size of the data that the copy replaces. */
const requireRoomForCopy = async (primary: PostgresInstance, freedBytes = 0): Promise<void> =>
  requireDiskSpace(dirname(primary.paths.folder), (await primary.sizeBytes()) - freedBytes)
