/** Numbers by the name of the series: one for a counter; one for each bucket and the sum for a histogram. */
export type Counts = Map<string, number[]>

/** Adds to the numbers of each series. The arrays of new series are stored and changed later: the caller must not use them again. */
export function addCounts(to: Counts, counts: Counts): void {
  for (const [series, numbers] of counts) {
    const known = to.get(series)
    if (known) for (const [n, number] of numbers.entries()) known[n] = (known[n] ?? 0) + number
    else to.set(series, numbers)
  }
}
