import { DurableObject } from 'cloudflare:workers'
import type { Bindings } from '../bindings.ts'
import { addCounts, type Counts } from './counts.ts'

/** What storage takes in one call. */
const STORED_MAX = 128

/** One object for the installation. It sums up what all isolates have counted; each entry of its storage is a series, and stays. */
export class MetricsCollector extends DurableObject<Bindings> {
  #totals: Counts = new Map()

  constructor(state: DurableObjectState, bindings: Bindings) {
    super(state, bindings)
    void state.blockConcurrencyWhile(async () => {
      this.#totals = await state.storage.list<number[]>()
    })
  }

  /** Returns the totals with these. */
  async add(counts: Counts): Promise<Counts> {
    addCounts(this.#totals, counts)
    const changed = Array.from(counts.keys(), (series) => [series, this.#totals.get(series)] as const)
    while (changed.length > 0) await this.ctx.storage.put(Object.fromEntries(changed.splice(0, STORED_MAX)))
    return this.#totals
  }
}
