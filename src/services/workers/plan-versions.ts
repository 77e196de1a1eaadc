import type { Plan } from './worker-plan.ts'

export type Version = Pick<Plan, 'deploymentId' | 'environment'>

export const isOf = (one: Version, { deploymentId, environment }: Version): boolean =>
  one.deploymentId === deploymentId && one.environment === environment

/** More than can be asked for at a time: who asks for one that was replaced does so within a second. */
const KEPT_MAX = 100

/** The versions of a worker in the order in which they were first seen. None ever comes back: whoever asks for one that was replaced is late. */
export class Versions {
  readonly #seen: Version[] = []
  /** How many were seen before those that are kept. */
  #forgotten = 0

  see(version: Version): number {
    const order = this.orderOf(version)
    if (order === this.#next) this.#seen.push(version)
    if (this.#seen.length > KEPT_MAX) {
      this.#seen.shift()
      this.#forgotten += 1
    }
    return order
  }

  /** That of one not seen yet follows those of all others. */
  orderOf(version: Version): number {
    const at = this.#seen.findIndex((seen) => isOf(seen, version))
    return at < 0 ? this.#next : this.#forgotten + at
  }

  get #next(): number {
    return this.#forgotten + this.#seen.length
  }
}
