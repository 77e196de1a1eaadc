import type { Figures } from './measure.ts'

/** Prints tables and verdicts of benchmarks; `failed` if any value was beyond its bound. */
export interface Report {
  title(text: string): void
  line(text: string): void
  table(figures: Record<string, Figures>): void
  ratio(ratio: Ratio): void
  atMost(name: string, value: number, bound: number): void
  atLeast(name: string, value: number, bound: number): void
  readonly failed: boolean
}

interface Ratio {
  name: string
  of: Figures
  to: Figures
  /** Limit for the ratio of the medians; a ratio without a bound is only printed. */
  bound?: number
}

export function openReport(write: (line: string) => void = console.log): Report {
  let failed = false
  const judge = (text: string, bound: number, passes: boolean) => {
    failed ||= !passes
    write(`  ${text}  bound ${bound}  ${passes ? 'PASS' : 'FAIL'}`)
  }
  return {
    title: (text) => write(`\n${text}`),
    line: (text) => write(`  ${text}`),
    table(figures) {
      write(`  ${''.padEnd(NAME_WIDTH)}${cell('p50 ms')}${cell('p95 ms')}${cell('req/s')}`)
      for (const [name, { p50Ms, p95Ms, requestsPerSecond }] of Object.entries(figures)) {
        write(`  ${name.padEnd(NAME_WIDTH)}${cell(ms(p50Ms))}${cell(ms(p95Ms))}${cell(requestsPerSecond.toFixed(0))}`)
      }
    },
    ratio({ name, of, to, bound }) {
      const value = of.p50Ms / to.p50Ms
      const rounds = of.roundsP50Ms.map((p50Ms, round) => p50Ms / (to.roundsP50Ms[round] ?? Number.NaN))
      const sorted = rounds.toSorted((a, b) => a - b)
      const at = (share: number) => sorted[Math.floor((sorted.length - 1) * share)]?.toFixed(2)
      const span = `half of the rounds ${at(0.25)} to ${at(0.75)}`
      const text = `${name.padEnd(NAME_WIDTH)}p50 ${value.toFixed(2)}×  (${span})`
      if (bound === undefined) write(`  ${text}  (no bound)`)
      else judge(text, bound, value <= bound)
    },
    atMost: (name, value, bound) => judge(`${name.padEnd(NAME_WIDTH)}${value}`, bound, value <= bound),
    atLeast: (name, value, bound) => judge(`${name.padEnd(NAME_WIDTH)}${value}`, bound, value >= bound),
    get failed() {
      return failed
    },
  }
}

const NAME_WIDTH = 34
const cell = (text: string) => text.padStart(10)
const ms = (value: number) => value.toFixed(value < 10 ? 2 : 1)
