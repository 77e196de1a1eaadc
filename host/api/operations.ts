import { randomUUID } from 'node:crypto'
import { awaitWithin } from '../../src/platform/timeout.ts'
import type { Reply } from './http.ts'

/** A request waits this long for its outcome: proxies and Workers give up on much longer requests. */
const WAIT_MS = 25_000
/** The outcome of an operation stays available for this time. */
const OUTCOME_TTL_MS = 10 * 60_000

/** Runs mutations that may outlast a request: the caller polls for the outcome. */
export class Operations {
  readonly #running = new Map<string, Promise<Reply>>()

  /** Returns the outcome, or after WAIT_MS an id to poll for it. */
  async run(work: () => Promise<Reply>): Promise<Reply> {
    const outcome = work()
    const settled = await awaitWithin(WAIT_MS, outcome)
    if (settled) return settled.value
    const id = randomUUID()
    this.#running.set(id, outcome)
    const forget = () => setTimeout(() => this.#running.delete(id), OUTCOME_TTL_MS).unref()
    outcome.then(forget, forget)
    return { status: 202, body: { operation: id } }
  }

  /** Undefined for an unknown or expired operation. */
  async outcome(id: string): Promise<Reply | undefined> {
    const outcome = this.#running.get(id)
    return outcome && ((await awaitWithin(WAIT_MS, outcome))?.value ?? { status: 202, body: { operation: id } })
  }
}
