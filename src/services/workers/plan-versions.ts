import type { Plan } from './worker-plan.ts'

export type Version = Pick<Plan, 'deploymentId' | 'environment'>

export const isSameVersion = (one: Version, { deploymentId, environment }: Version): boolean =>
  one.deploymentId === deploymentId && one.environment === environment

/** Enough for all versions in use at one time: a replaced version is requested for at most a second more. */
const VERSIONS_MAX = 100

/**
 * The versions of a worker in the order in which they were first seen. A request for an older version is a late one,
 * never a rollback.
 */
export class Versions {
  readonly #seen: Version[] = []
  /** Number of versions removed from the front of `#seen`. */
  #removed = 0

  add(version: Version): number {
    const order = this.orderOf(version)
    if (order === this.#next) this.#seen.push(version)
    if (this.#seen.length > VERSIONS_MAX) {
      this.#seen.shift()
      this.#removed += 1
    }
    return order
  }

  /** Position of a version; an unseen one comes after all others. */
  orderOf(version: Version): number {
    const at = this.#seen.findIndex((seen) => isSameVersion(seen, version))
    return at < 0 ? this.#next : this.#removed + at
  }

  get #next(): number {
    return this.#removed + this.#seen.length
  }
}
