/** A repeatable generator: the same seed gives the same numbers (mulberry32). */
export function createRandom(seed: number) {
  let state = (seed ^ 0x9e3779b9) >>> 0

  function next(): number {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
  const whole = (least: number, most: number) => least + Math.floor(next() * (most - least + 1))

  return {
    next,
    whole,
    chance: (probability: number) => next() < probability,
    pick: <T>(items: readonly T[]): T => items[whole(0, items.length - 1)] as T,
    shuffle: <T>(items: readonly T[]): T[] =>
      items
        .map((item) => ({ item, at: next() }))
        .sort((a, b) => a.at - b.at)
        .map(({ item }) => item),
  }
}
/** Returns a generator of whole numbers below a bound. */
export function drawFrom(seed: number): (below: number) => number {
  const { whole } = createRandom(seed)
  return (below) => whole(0, below - 1)
}

export type Random = ReturnType<typeof createRandom>
