import { chown, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { copyFiles } from '../copies/copy-files.ts'
import { exists } from '../instances/files.ts'
import type { PostgresInstance } from '../instances/instance.ts'
import type { InstancePool } from '../instances/instances.ts'
import { KeyedMutex } from '../instances/mutex.ts'
import { isReplicaName } from '../instances/record.ts'
import { type Instance, type InstanceRecord, InstanceUnavailable, Refused } from '../instances/types.ts'
import { activate } from '../settings/apply.ts'
import { openRelay } from './relay.ts'
import { BOUNDS, createSlot, dropSlot, factsOf, type PrimaryFacts, slotFor, slotsOf, streamsOf } from './slots.ts'

export interface ReplicaState {
  id: string
  /** `running` only while it follows; `starting` while it is made or has lost its primary. */
  state: ReturnType<Instance['state']>
  lag_bytes: number | null
  lag_seconds: number | null
}

interface Parts {
  pool: InstancePool
  log(event: string, fields: Record<string, unknown>): void
}

const TICK_MS = 5_000
/** In the data folder of a complete replica; it is written last. */
const SIGNAL = 'standby.signal'
/** Standbys of the instances of this host. Each is an instance of its own, with what its primary has been given. */
export class Replicas {
  readonly #pool: InstancePool
  readonly #log: Parts['log']
  readonly #turns = new KeyedMutex()
  readonly #relays = new Map<string, Promise<() => void>>()
  readonly #copying = new Set<string>()
  #applyAccess: ((instance: Instance) => void) | undefined
  #clock: NodeJS.Timeout | undefined

  constructor({ pool, log }: Parts) {
    this.#pool = pool
    this.#log = log
    pool.observe({ starting: (instance) => this.#starting(instance), started: (instance) => this.#started(instance) })
  }

  /** Brings all replicas to what their primaries are, now and from now on. */
  open(applyAccess: (instance: Instance) => void): void {
    this.#applyAccess = applyAccess
    const followAll = (isFirst: boolean) => {
      const names = this.#pool.list().flatMap(({ record }) => record.primary?.name ?? (isFirst ? record.name : []))
      for (const name of new Set(names)) void this.follow(name)
    }
    followAll(true)
    this.#clock = setInterval(followAll, TICK_MS, false).unref()
  }

  async close(): Promise<void> {
    clearInterval(this.#clock)
    this.#applyAccess = undefined
    for (const relay of this.#relays.values()) (await relay)()
  }

  /** Resolves when the replica serves reads. */
  async add(name: string, id: string): Promise<void> {
    if (!isReplicaName(id) || !id.startsWith(`${name}-`)) {
      throw new Refused([{ setting: 'replica', reason: `${id} is not the name of a replica of ${name}` }])
    }
    const primary = this.#pool.require(name)
    await this.#turns.run(name, async () => {
      if (!this.#pool.find(id)) await this.#make(primary, id)
      await this.#follow(name)
    })
    await this.#pool.require(id).wake()
  }

  async remove(name: string, id: string): Promise<void> {
    await this.#turns.run(name, async () => {
      const replica = this.#pool.find(id)
      const primary = this.#pool.find(name)
      if (replica?.record.primary?.name !== name) return
      await this.#discard(replica)
      if (primary) await dropSlot(primary, replica.record.primary.slot)
    })
  }

  /** Without waking anything. */
  async list(name: string): Promise<ReplicaState[]> {
    const replicas = this.#pool.replicasOf(name)
    const primary = this.#pool.find(name)
    if (replicas.length === 0 || !primary) return []
    const rows = await streamsOf(primary).catch(() => undefined)
    return replicas.map((replica) => {
      const stream = rows?.find(({ slot }) => slot === replica.record.primary?.slot)
      const { bytes = null, seconds = null } = stream ?? {}
      const isBehind = replica.state() === 'running' && primary.state() === 'running' && !stream
      const state = isBehind || this.#copying.has(replica.name) ? 'starting' : replica.state()
      return { id: replica.name, state, lag_bytes: bytes, lag_seconds: seconds }
    })
  }

  /** Gives the replicas what their primary has now; they go if it is gone. */
  async follow(name: string): Promise<void> {
    await this.#turns.run(name, () => this.#follow(name)).catch((error) => this.#failed(name, error))
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
      for (const replica of replicas) await this.#share(replica, primary, {})
      return
    }
    const used = replicas.map(({ record }) => record.primary?.slot)
    const slots = await slotsOf(primary)
    for (const slot of slots.filter((each) => !used.includes(each))) await dropSlot(primary, slot)
    if (replicas.length === 0) return
    const { bounds, lost } = await factsOf(primary)
    const valid = new Set(slots.filter((slot) => !lost?.includes(slot)))
    for (const replica of replicas) {
      await this.#align(replica, primary, { valid, bounds }).catch((error) => this.#failed(replica.name, error))
    }
  }

  async #align(replica: PostgresInstance, primary: PostgresInstance, { valid, bounds }: Alignment): Promise<void> {
    const isChanged = await this.#share(replica, primary, bounds)
    if (this.#copying.has(replica.name)) return
    const isComplete = await exists(join(replica.paths.data, SIGNAL))
    // Data from before or beside the slot: the primary has been restored, or has removed WAL that the replica still needs.
    if (!isComplete || !valid.has(replica.record.primary?.slot ?? '')) return void this.#remake(replica, primary)
    if (isChanged) await activate(replica, true)
    else if (replica.state() !== 'running') await replica.wake()
  }

  /** Whether the server's configuration has changed. */
  async #share(replica: PostgresInstance, primary: PostgresInstance, bounds: Bounds): Promise<boolean> {
    const { settings: own, ...before } = replica.record
    const { size, access, sleepAfterSeconds } = primary.record
    const grown = BOUNDS.map((name) => [name, String(Math.max(Number(own[name] ?? 0), Number(bounds[name] ?? 0)))])
    const settings = { ...primary.record.settings, ...Object.fromEntries(grown.filter(([, value]) => value !== '0')) }
    const shared = { size, access, isPaused: false, ...(sleepAfterSeconds !== undefined && { sleepAfterSeconds }) }
    if (isDeepStrictEqual({ ...before, settings: own }, { ...before, ...shared, settings })) return false
    await replica.update({ ...shared, settings })
    if (!isDeepStrictEqual(before.access, access)) this.#applyAccess?.(replica)
    return before.size !== size || !isDeepStrictEqual(own, settings)
  }

  async #make(primary: PostgresInstance, id: string): Promise<void> {
    const { major, size, settings, access } = primary.record
    const slot = slotFor(id)
    await createSlot(primary, slot)
    const more = { settings, access, primary: { name: primary.name, slot } }
    await this.#pool.make({ name: id, major, size }, (data, record) => fill(primary, data, record), more)
  }

  /** Beside other work, as it takes as long as the data is large; whatever ends it, the next turn begins again. */
  async #remake(replica: PostgresInstance, primary: PostgresInstance): Promise<void> {
    this.#copying.add(replica.name)
    try {
      const slot = slotFor(replica.name)
      await replica.update({ primary: { name: primary.name, slot } })
      await rm(join(replica.paths.data, SIGNAL), { force: true })
      await replica.whileStopped(async () => {
        await createSlot(primary, slot)
        await fill(primary, replica.paths.data, replica.record)
      })
      setImmediate(() => this.follow(primary.name))
    } catch (error) {
      this.#failed(replica.name, error)
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

  /** A replica must not serve what is older than its primary's last words, nor start as a primary of its own. */
  async #starting(instance: PostgresInstance): Promise<void> {
    const { primary } = instance.record
    if (!primary) return
    if (!(await exists(join(instance.paths.data, SIGNAL)))) throw new InstanceUnavailable('The replica is being made')
    await this.#pool.require(primary.name).wake()
    await this.#relay(instance, primary.name)
  }

  #started(instance: PostgresInstance): void {
    const { name, record } = instance
    if (record.primary) {
      this.#relay(instance, record.primary.name).catch((error) => this.#failed(name, error))
      this.#pool
        .find(record.primary.name)
        ?.wake()
        .catch((error) => this.#failed(name, error))
    } else if (this.#applyAccess && this.#pool.replicasOf(name).length > 0) void this.follow(name)
  }

  #relay(replica: PostgresInstance, primary: string): Promise<() => void> {
    const relay = this.#relays.get(replica.name) ?? openRelay(replica, () => this.#pool.find(primary))
    this.#relays.set(replica.name, relay)
    relay.catch(() => this.#relays.delete(replica.name))
    return relay
  }

  #failed(name: string, error: unknown): void {
    this.#log('replica_failed', { instance: name, error: error instanceof Error ? error.message : String(error) })
  }
}

type Bounds = PrimaryFacts['bounds']

interface Alignment {
  valid: ReadonlySet<string>
  bounds: Bounds
}

async function fill(primary: Instance, data: string, { account }: InstanceRecord): Promise<void> {
  await copyFiles(primary, { data, ...(account && { account }) })
  await writeFile(join(data, SIGNAL), '', { mode: 0o600 })
  if (account) await chown(join(data, SIGNAL), account.uid, account.gid)
}
