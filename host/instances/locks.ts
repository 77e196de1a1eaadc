import { randomUUID } from 'node:crypto'
import { awaitWithin } from '../../src/platform/timeout.ts'

/** A lock expires after this time unless it is renewed or an operation runs under it, in case its holder has died. */
const EXPIRES_MS = 6_000
/** Time that a mutation without a lock of its own waits for one. */
const WAIT_MS = 60_000

interface Held {
  id: string
  /** Number of operations that run under the lock. */
  operations: number
  expiresAt: number
  /** Resolves when the lock is free. */
  freed: PromiseWithResolvers<void>
}

/** Another operation holds the lock on the instance, or the lock has expired. */
export class Locked extends Error {
  override name = 'Locked'
}

/** Exclusive locks on instances. The holder of a lock proves it by a random id. */
export class Locks {
  readonly #held = new Map<string, Held>()

  async take(name: string, waitMs: number): Promise<string> {
    const until = Date.now() + waitMs
    for (;;) {
      const held = this.#current(name)
      if (!held) {
        const id = randomUUID()
        const freed = Promise.withResolvers<void>()
        this.#held.set(name, { id, operations: 0, expiresAt: Date.now() + EXPIRES_MS, freed })
        return id
      }
      const left = until - Date.now()
      if (left <= 0) throw new Locked(`Another operation is running on the instance ${name}`)
      await awaitWithin(Math.min(left, Math.max(held.expiresAt - Date.now(), 50)), held.freed.promise)
    }
  }

  renew(name: string, id: string): void {
    const held = this.#current(name)
    if (held?.id !== id) throw new Locked(`The lock on the instance ${name} has expired`)
    held.expiresAt = Date.now() + EXPIRES_MS
  }

  release(name: string, id: string): void {
    const held = this.#held.get(name)
    // The lock is kept until the operations under it have ended.
    if (held?.id === id && held.operations === 0) this.#free(name)
    else if (held?.id === id) held.expiresAt = 0
  }

  /** Runs work under the lock with this id, or under a new one if `id` is undefined. */
  async under<Value>(name: string, id: string | undefined, work: () => Promise<Value>): Promise<Value> {
    const own = id ?? (await this.take(name, WAIT_MS))
    const held = this.#current(name)
    if (held?.id !== own) throw new Locked(`The lock on the instance ${name} has expired`)
    held.operations += 1
    try {
      return await work()
    } finally {
      held.operations -= 1
      // Only a renewal shows that the holder lives: the end of an operation that a dead one began prolongs nothing.
      if (held.operations === 0 && (id === undefined || held.expiresAt <= Date.now())) this.#free(name)
    }
  }

  #current(name: string): Held | undefined {
    const held = this.#held.get(name)
    if (held && held.operations === 0 && held.expiresAt <= Date.now()) this.#free(name)
    return this.#held.get(name)
  }

  #free(name: string): void {
    this.#held.get(name)?.freed.resolve()
    this.#held.delete(name)
  }
}
