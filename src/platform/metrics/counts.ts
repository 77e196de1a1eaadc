/** Numbers by the name of the series: one for a counter; one for each bucket and the sum for a histogram. */
export type Counts = Map<string, number[]>

/** Adds to the numbers of a series. The array of a new series is stored and changed later: the caller must not use it again. */
export function addNumbers(to: Counts, series: string, numbers: number[]): void {
  const known = to.get(series)
  if (known) for (const [n, number] of numbers.entries()) known[n] = (known[n] ?? 0) + number
  else to.set(series, numbers)
}

export function addCounts(to: Counts, counts: Counts): void {
  for (const [series, numbers] of counts) addNumbers(to, series, numbers)
}
