import { NO_COLUMNS } from './reply.ts'

/** A statement prepared in a session. If its result columns change, Postgres reports an error. */
export interface Plan {
  name: string
  /** JSON of its result columns. */
  columns: string
}

const PLANS_MAX = 500
/** Longer texts are not kept: callers choose them, and no budget counts them. */
const TEXT_LENGTH_MAX = 16 * 1024
const LENGTH_MAX = 1024 * 1024

/** The prepared statements of a session by their text, so that Postgres plans each once. The least recently used make room for new ones. */
export class Plans {
  readonly #plans = new Map<string, Plan>()
  /** Names of statements that were removed. Postgres may still have them. */
  readonly #freeNames: string[] = []
  #length = 0

  get(text: string): Plan | undefined {
    const found = this.#plans.get(text)
    if (!found) return undefined
    // Inserted anew, so that the first one is the least recently used.
    this.#plans.delete(text)
    this.#plans.set(text, found)
    return found
  }

  /** Returns undefined if the text is too long to be kept. */
  add(text: string): Plan | undefined {
    if (text.length > TEXT_LENGTH_MAX) return undefined
    for (const oldest of this.#plans.keys()) {
      if (this.#plans.size < PLANS_MAX && this.#length + text.length <= LENGTH_MAX) break
      this.remove(oldest)
    }
    const plan = { name: this.#freeNames.pop() ?? `s${this.#plans.size}`, columns: NO_COLUMNS }
    this.#plans.set(text, plan)
    this.#length += text.length
    return plan
  }

  remove(text: string): void {
    const plan = this.#plans.get(text)
    if (!plan) return
    this.#plans.delete(text)
    this.#length -= text.length
    this.#freeNames.push(plan.name)
  }

  clear(): void {
    for (const text of this.#plans.keys()) this.remove(text)
  }
}
