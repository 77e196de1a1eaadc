import { expect } from 'vitest'

const NAME = /^[a-z][a-z0-9_]*$/
const SAMPLE = /^([a-z][a-z0-9_]*)(?:\{(.*)\})? (\S+)$/
const LABEL = /([a-z_]+)="((?:[^"\\\n]|\\[\\"n])*)"(,|$)/y

export interface Parsed {
  /** Values by `name{label="text",…}`. */
  values: Map<string, number>
  /** Types of the families. */
  types: Map<string, string>
  /** Returns the sum of the samples of that name with these labels. */
  sum(name: string, labels?: Record<string, string>): number
}

/** Parses OpenMetrics text, and fails if it breaks a rule of the format. */
export function parseOpenMetrics(text: string): Parsed {
  const lines = text.split('\n')
  expect(lines.slice(-2)).toEqual(['# EOF', ''])
  const values = new Map<string, number>()
  const types = new Map<string, string>()
  const labelled: { name: string; labels: Record<string, string>; value: number }[] = []
  let family = ''
  for (const line of lines.slice(0, -2)) {
    const [, kind, name = '', rest = ''] = /^# (TYPE|UNIT|HELP) (\S+) (.+)$/.exec(line) ?? []
    if (kind === 'TYPE') {
      expect(name).toMatch(NAME)
      expect(types.has(name), `${name} stands in one place`).toBe(false)
      types.set(name, rest)
      family = name
    } else if (kind) {
      expect(name, line).toBe(family)
      if (kind === 'UNIT') expect(name.endsWith(`_${rest}`), line).toBe(true)
    } else {
      const [, sample = '', inside = '', number = ''] = SAMPLE.exec(line) ?? []
      expect(
        SUFFIXES[types.get(family) ?? '']?.map((suffix) => family + suffix),
        line,
      ).toContain(sample)
      expect(Number.isFinite(Number(number)), line).toBe(true)
      const key = inside ? `${sample}{${inside}}` : sample
      expect(values.has(key), `${key} is there once`).toBe(false)
      values.set(key, Number(number))
      labelled.push({ name: sample, labels: labelsIn(inside), value: Number(number) })
    }
  }
  const sum: Parsed['sum'] = (name, labels = {}) =>
    labelled
      .filter((one) => one.name === name && Object.entries(labels).every(([label, is]) => one.labels[label] === is))
      .reduce((total, { value }) => total + value, 0)
  return { values, types, sum }
}

const SUFFIXES: Record<string, string[]> = {
  gauge: [''],
  counter: ['_total'],
  info: ['_info'],
  histogram: ['_bucket', '_count', '_sum'],
}

function labelsIn(text: string): Record<string, string> {
  const labels: Record<string, string> = {}
  LABEL.lastIndex = 0
  while (LABEL.lastIndex < text.length) {
    const found = LABEL.exec(text)
    if (!found) throw new Error(`no labels: ${text}`)
    const [, name = '', value = ''] = found
    expect(name in labels, `${name} is there once`).toBe(false)
    labels[name] = value.replace(/\\(.)/g, (_, c) => (c === 'n' ? '\n' : c))
  }
  return labels
}
