import { addressGroup } from './networks.ts'

export interface BanLimits {
  /** So many failures… */
  failures: number
  /** …within this time ban an address… */
  failuresMs: number
  /** …for so long. */
  banMs: number
}

export interface Ban {
  address: string
  until: Date
}

interface Record {
  name: string
  address: string
  failures: number[]
  until: number
}

const RECORDS_MAX = 10_000

/** Failed logins of addresses at instances, and the bans that follow from them. */
export class Bans {
  readonly #limits: BanLimits
  readonly #now: () => number
  readonly #onBan: (address: string, name: string) => void
  /** In the order of the last failure. */
  readonly #records = new Map<string, Record>()

  constructor(limits: BanLimits, now: () => number, onBan: (address: string, name: string) => void) {
    this.#limits = limits
    this.#now = now
    this.#onBan = onBan
  }

  until(name: string, address: string): Date | undefined {
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
    if (this.#records.size > RECORDS_MAX) this.#forget(now)
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

  /** Everything that has lapsed; otherwise the oldest record without a ban, otherwise the oldest. */
  #forget(now: number) {
    for (const [id, { failures, until }] of this.#records) {
      if (until <= now && (failures.at(-1) ?? 0) <= now - this.#limits.failuresMs) this.#records.delete(id)
    }
    if (this.#records.size <= RECORDS_MAX) return
    const [oldest] = this.#records.keys()
    const found = [...this.#records].find(([, { until }]) => until <= now)?.[0] ?? oldest
    if (found !== undefined) this.#records.delete(found)
  }
}

const key = (name: string, group: string) => `${name} ${group}`
