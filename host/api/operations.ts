import { randomUUID } from 'node:crypto'
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
    const first = await waitFor(outcome)
    if (first) return first
    const id = randomUUID()
    this.#running.set(id, outcome)
    const forget = () => setTimeout(() => this.#running.delete(id), OUTCOME_TTL_MS).unref()
    outcome.then(forget, forget)
    return { status: 202, body: { operation: id } }
  }

  /** Undefined for an unknown or expired operation. */
  async outcome(id: string): Promise<Reply | undefined> {
    const outcome = this.#running.get(id)
    return outcome && ((await waitFor(outcome)) ?? { status: 202, body: { operation: id } })
  }
}

async function waitFor(outcome: Promise<Reply>): Promise<Reply | undefined> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(resolve, WAIT_MS, undefined)
  })
  try {
    return await Promise.race([outcome, late])
  } finally {
    clearTimeout(timer)
  }
}
