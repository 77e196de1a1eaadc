/** Numbers by the name of the series: one for a counter; one for each bucket and the sum for a histogram. */
export type Counts = Map<string, number[]>

export function addCounts(to: Counts, counts: Counts): void {
  for (const [series, numbers] of counts) {
    const known = to.get(series)
    to.set(series, known ? numbers.map((number, n) => number + (known[n] ?? 0)) : numbers)
  }
}
