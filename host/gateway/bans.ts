import { addressGroup } from '../../src/platform/net/ip-addresses.ts'

export interface BanLimits {
  /** Number of failed logins of an address within `failuresMs` that leads to a ban. */
  failures: number
  failuresMs: number
  /** Length of a ban. */
  banMs: number
}

export interface Ban {
  address: string
  until: Date
}

interface FailureRecord {
  name: string
  address: string
  failures: number[]
  until: number
}

const RECORDS_MAX = 10_000

/** Counts failed logins by instance and address, and bans addresses with too many of them. */
export class Bans {
  readonly #limits: BanLimits
  readonly #now: () => number
  readonly #onBan: (address: string, name: string) => void
  /** Ordered by the last failure, oldest first. */
  readonly #records = new Map<string, FailureRecord>()

  constructor(limits: BanLimits, now: () => number, onBan: (address: string, name: string) => void) {
    this.#limits = limits
    this.#now = now
    this.#onBan = onBan
  }

  /** The end of the address's ban; undefined without a ban. */
  banEnd(name: string, address: string): Date | undefined {
    const record = this.#records.get(key(name, addressGroup(address)))
    return record && record.until > this.#now() ? new Date(record.until) : undefined
  }

  recordFailure(name: string, address: string) {
    const now = this.#now()
    const group = addressGroup(address)
    const record = this.#records.get(key(name, group)) ?? { name, address: group, failures: [], until: 0 }
    record.failures = [...record.failures.filter((at) => at > now - this.#limits.failuresMs), now]
    if (record.failures.length >= this.#limits.failures) {
      record.until = now + this.#limits.banMs
      record.failures = []
      this.#onBan(group, name)
    }
    this.#records.delete(key(name, group))
    this.#records.set(key(name, group), record)
    if (this.#records.size > RECORDS_MAX) this.#evict(now)
  }

  list(name: string): Ban[] {
    const now = this.#now()
    return [...this.#records.values()]
      .filter((record) => record.name === name && record.until > now)
      .map(({ address, until }) => ({ address, until: new Date(until) }))
  }

  lift(name: string, addresses: readonly string[]) {
    for (const address of addresses) this.#records.delete(key(name, addressGroup(address)))
  }

  /** Evicts all expired records; if there are none, the oldest record without a ban, else the oldest. */
  #evict(now: number) {
    for (const [id, { failures, until }] of this.#records) {
      if (until <= now && (failures.at(-1) ?? 0) <= now - this.#limits.failuresMs) this.#records.delete(id)
    }
    if (this.#records.size <= RECORDS_MAX) return
    const [oldest] = this.#records.keys()
    const evicted = [...this.#records].find(([, { until }]) => until <= now)?.[0] ?? oldest
    if (evicted !== undefined) this.#records.delete(evicted)
  }
}

const key = (name: string, group: string) => `${name} ${group}`
