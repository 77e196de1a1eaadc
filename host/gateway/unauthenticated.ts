import { Fatal } from './messages.ts'
import { addressGroup } from './networks.ts'

export interface UnauthenticatedLimits {
  /** Connections that have not authenticated yet: of all clients… */
  unauthenticated: number
  /** …and of one address. */
  unauthenticatedPerAddress: number
  authenticationMs: number
}

/** A connection before its authentication, and the time that its client has left for that. */
export interface Attempt {
  /** Stops the clock while the client waits for an instance. */
  waitFor<Value>(name: string, work: () => Promise<Value>): Promise<Value>
  end(): void
}

interface Place {
  isWaiting: boolean
  evict(): void
}

/** Connections whose clients have not proved who they are. */
export class Unauthenticated {
  readonly #limits: UnauthenticatedLimits
  /** By address, the oldest first. */
  readonly #byAddress = new Map<string, Set<Place>>()
  /** Clients that wait for an instance count for that instance alone: a slow start of one must not lock out the clients of others. */
  readonly #waiting = new Counter()
  #total = 0

  constructor(limits: UnauthenticatedLimits) {
    this.#limits = limits
  }

  /** Calls `expire` if the attempt has not ended in time, or if it must make room for another address. */
  begin(address: string, expire: () => void): Attempt {
    const { unauthenticated, unauthenticatedPerAddress, authenticationMs } = this.#limits
    const group = addressGroup(address)
    const ofAddress = this.#byAddress.get(group) ?? new Set()
    if (ofAddress.size >= unauthenticatedPerAddress) throw tooMany()
    if (this.#total >= unauthenticated) this.#makeRoom(ofAddress.size)
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
      if (this.#waiting.get(name) >= unauthenticated) throw tooMany()
      stop()
      this.#waiting.add(name, 1)
      place.isWaiting = true
      try {
        return await work()
      } finally {
        place.isWaiting = false
        this.#waiting.add(name, -1)
        if (!hasEnded) start()
      }
    }
    const end = () => {
      if (hasEnded) return
      hasEnded = true
      if (!place.isWaiting) stop()
      ofAddress.delete(place)
      if (ofAddress.size === 0) this.#byAddress.delete(group)
    }
    const evict = () => {
      end()
      expire()
    }
    const place = { isWaiting: false, evict }
    start()
    this.#byAddress.set(group, ofAddress.add(place))
    return { waitFor, end }
  }

  /** The address that holds the most places loses its oldest, so that a flood of silent clients keeps out itself alone. */
  #makeRoom(ownPlaces: number) {
    const [most = new Set()] = [...this.#byAddress.values()].sort((a, b) => b.size - a.size)
    const oldest = [...most].find(({ isWaiting }) => !isWaiting)
    if (!oldest || most.size <= ownPlaces + 1) throw tooMany()
    oldest.evict()
  }
}

const tooMany = () => new Fatal('53300', 'too many connections that have not authenticated')

/** Forgets what it has counted down to zero. */
class Counter {
  readonly #counts = new Map<string, number>()

  get(key: string): number {
    return this.#counts.get(key) ?? 0
  }

  add(key: string, change: number) {
    const count = this.get(key) + change
    if (count > 0) this.#counts.set(key, count)
    else this.#counts.delete(key)
  }
}
