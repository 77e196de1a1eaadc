/** By the name of a series, its numbers: one of a counter; of a histogram those of its buckets, and their sum. */
export type Counts = Map<string, number[]>

export function addCounts(to: Counts, counts: Counts): void {
  for (const [series, numbers] of counts) {
    const known = to.get(series)
    to.set(series, known ? numbers.map((number, n) => number + (known[n] ?? 0)) : numbers)
  }
}
