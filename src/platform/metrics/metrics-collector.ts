import { DurableObject } from 'cloudflare:workers'
import type { Bindings } from '../bindings.ts'
import { addCounts, type Counts } from './counts.ts'

/** Limit of Durable Object storage for one call. */
const PUT_ENTRIES_MAX = 128

/** Sums up the counts of all isolates; one object per installation. Each storage entry is a series and is never deleted. */
export class MetricsCollector extends DurableObject<Bindings> {
  #totals: Counts = new Map()

  constructor(state: DurableObjectState, bindings: Bindings) {
    super(state, bindings)
    void state.blockConcurrencyWhile(async () => {
      this.#totals = await state.storage.list<number[]>()
    })
  }

  /** Adds counts and returns the new totals. */
  async add(counts: Counts): Promise<Counts> {
    addCounts(this.#totals, counts)
    const changed = Array.from(counts.keys(), (series) => [series, this.#totals.get(series)] as const)
    while (changed.length > 0) await this.ctx.storage.put(Object.fromEntries(changed.splice(0, PUT_ENTRIES_MAX)))
    return this.#totals
  }
}
