import { randomUUID } from 'node:crypto'
import type { Reply } from './http.ts'

/** Proxies and Workers give up on requests that take much longer. */
const WAIT_MS = 25_000
/** The outcome of an operation can be asked for again for so long. */
const KEPT_MS = 10 * 60_000

/** Mutations that may outlast a request: the caller comes back for the outcome. */
export class Operations {
  readonly #running = new Map<string, Promise<Reply>>()

  /** The outcome, or an id to ask for it by. */
  async run(work: () => Promise<Reply>): Promise<Reply> {
    const outcome = work()
    const first = await within(outcome)
    if (first) return first
    const id = randomUUID()
    this.#running.set(id, outcome)
    const forget = () => setTimeout(() => this.#running.delete(id), KEPT_MS).unref()
    outcome.then(forget, forget)
    return { status: 202, body: { operation: id } }
  }

  /** Undefined for an operation that nobody knows (any more). */
  async outcome(id: string): Promise<Reply | undefined> {
    const outcome = this.#running.get(id)
    return outcome && ((await within(outcome)) ?? { status: 202, body: { operation: id } })
  }
}

async function within(outcome: Promise<Reply>): Promise<Reply | undefined> {
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
