import { BUCKETS, COUNTERS, DURATION, seriesOf } from './counters.ts'
import type { Counts } from './counts.ts'
import type { Family, Sample } from './openmetrics.ts'

/** Creates the metric families from the totals of all isolates. */
export function counterFamilies(totals: Counts): Family[] {
  const counters = Object.entries(COUNTERS).map(([name, { labels, help }]): Family => {
    const found = valuesOf(totals, name, labels)
    return {
      name,
      type: 'counter',
      help,
      samples: found.map(({ labels, numbers: [value = 0] }) => ({ labels, value })),
    }
  })
  const help = 'Time from a request to the start of its reply.'
  const samples = valuesOf(totals, DURATION, ['service']).flatMap(histogramSamples)
  return [...counters, { name: DURATION, type: 'histogram', help, samples }]
}

interface Values {
  labels: Record<string, string>
  numbers: number[]
}

function valuesOf(totals: Counts, metric: string, names: readonly string[]): Values[] {
  const begin = seriesOf(metric, [''])
  const found = Array.from(totals).filter(([series]) => series.startsWith(begin))
  return found
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([series, numbers]) => {
      const [, ...labels] = series.split(' ')
      return { labels: Object.fromEntries(names.map((name, n) => [name, labels[n] ?? ''])), numbers }
    })
}

/** Creates cumulative buckets, as the format requires. */
function histogramSamples({ labels, numbers }: Values): Sample[] {
  let count = 0
  const buckets = [...BUCKETS, Number.POSITIVE_INFINITY].map((bound, n): Sample => {
    count += numbers[n] ?? 0
    const le = bound === Number.POSITIVE_INFINITY ? '+Inf' : String(Number.isInteger(bound) ? bound.toFixed(1) : bound)
    return { suffix: '_bucket', labels: { ...labels, le }, value: count }
  })
  return [
    ...buckets,
    { suffix: '_count', labels, value: count },
    { suffix: '_sum', labels, value: numbers.at(-1) ?? 0 },
  ]
}
