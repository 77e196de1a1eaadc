import { addressGroup } from '../../src/platform/net/ip-addresses.ts'
import { Fatal } from './messages.ts'

export interface UnauthenticatedLimits {
  /** Limit for connections that have not authenticated yet, of all clients together. */
  unauthenticated: number
  /** The same limit for each address. */
  unauthenticatedPerAddress: number
  authenticationMs: number
}

/** A connection before its authentication, with the time that remains for it. */
export interface Attempt {
  /** Stops the timeout while the client waits for an instance to start. */
  waitFor<Value>(name: string, work: () => Promise<Value>): Promise<Value>
  /** Counts the attempt under another address from now on, even if that address has too many and this throws. */
  countAs(address: string): void
  end(): void
}

interface Slot {
  isWaiting: boolean
  evict(): void
}

/** Limits the connections that have not authenticated, and the time they may take. */
export class Unauthenticated {
  readonly #limits: UnauthenticatedLimits
  /** Slots of each address, oldest first. */
  readonly #byAddress = new Map<string, Set<Slot>>()
  /** Waiting clients are counted by instance alone: the slow start of one must not lock out the clients of others. */
  readonly #waiting = new Map<string, number>()
  #total = 0

  constructor(limits: UnauthenticatedLimits) {
    this.#limits = limits
  }

  /** Calls `expire` if the attempt times out, or is evicted: in favour of another address, or of a later attempt of its own. */
  begin(address: string, expire: () => void): Attempt {
    const { unauthenticated, unauthenticatedPerAddress, authenticationMs } = this.#limits
    let group = addressGroup(address)
    // Programs of all projects may have one address until they name their project: connections that never do must not lock out others.
    if (this.#countOf(group) >= unauthenticatedPerAddress) evict(this.#active(group)[0])
    if (this.#total >= unauthenticated) this.#evictOldest(group)
    let left = authenticationMs
    let since = 0
    let hasEnded = false
    let timer: NodeJS.Timeout
    const start = () => {
      this.#total += 1
      since = performance.now()
      timer = setTimeout(expire, left)
    }
    const stop = () => {
      this.#total -= 1
      left -= performance.now() - since
      clearTimeout(timer)
    }
    const waitFor = async <Value>(name: string, work: () => Promise<Value>): Promise<Value> => {
      const waiting = () => this.#waiting.get(name) ?? 0
      if (waiting() >= unauthenticated) throw tooMany()
      stop()
      this.#waiting.set(name, waiting() + 1)
      slot.isWaiting = true
      try {
        return await work()
      } finally {
        slot.isWaiting = false
        this.#waiting.set(name, waiting() - 1)
        if (!hasEnded) start()
      }
    }
    const end = () => {
      if (hasEnded) return
      hasEnded = true
      if (!slot.isWaiting) stop()
      this.#remove(group, slot)
    }
    const countAs = (other: string) => {
      if (hasEnded) return
      this.#remove(group, slot)
      group = addressGroup(other)
      this.#add(group, slot)
      if (this.#countOf(group) > unauthenticatedPerAddress) throw tooMany()
    }
    const slot: Slot = {
      isWaiting: false,
      evict() {
        end()
        expire()
      },
    }
    start()
    this.#add(group, slot)
    return { waitFor, countAs, end }
  }

  #countOf(group: string): number {
    return this.#byAddress.get(group)?.size ?? 0
  }

  #add(group: string, slot: Slot) {
    this.#byAddress.set(group, (this.#byAddress.get(group) ?? new Set()).add(slot))
  }

  #remove(group: string, slot: Slot) {
    const slots = this.#byAddress.get(group)
    slots?.delete(slot)
    if (slots?.size === 0) this.#byAddress.delete(group)
  }

  /**
   * Evicts the oldest slot of the address with the most slots, so that a flood of silent clients locks out only itself. Waiting slots
   * do not count: they take no place in the total.
   */
  #evictOldest(group: string) {
    const [most = []] = [...this.#byAddress.keys()].map((key) => this.#active(key)).sort((a, b) => b.length - a.length)
    if (most.length <= this.#active(group).length + 1) throw tooMany()
    evict(most[0])
  }

  #active(group: string): Slot[] {
    return [...(this.#byAddress.get(group) ?? [])].filter(({ isWaiting }) => !isWaiting)
  }
}

function evict(slot: Slot | undefined): void {
  if (!slot) throw tooMany()
  slot.evict()
}

const tooMany = () => new Fatal('53300', 'too many connections that have not authenticated')
