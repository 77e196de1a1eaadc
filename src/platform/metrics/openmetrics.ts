/** A value with its labels. `suffix` is appended to the name of the family. */
export interface Sample {
  suffix?: string
  labels?: Record<string, string>
  value: number
}

export interface Family {
  name: string
  type: 'counter' | 'gauge' | 'histogram' | 'info'
  help: string
  samples: readonly Sample[]
}

export const CONTENT_TYPE = 'application/openmetrics-text; version=1.0.0; charset=utf-8'

const PREFIX = 'pilothouse_'
const UNITS = ['seconds', 'bytes']

/** Formats metrics as OpenMetrics 1.0 text. */
export const openMetricsText = (families: readonly Family[]): string => `${families.map(familyText).join('')}# EOF\n`

function familyText({ name: short, type, help, samples }: Family): string {
  const name = PREFIX + short
  const unit = UNITS.find((unit) => name.endsWith(`_${unit}`))
  return [
    `# TYPE ${name} ${type}`,
    ...(unit ? [`# UNIT ${name} ${unit}`] : []),
    `# HELP ${name} ${help}`,
    ...samples.map(({ suffix = SUFFIXES[type] ?? '', labels = {}, value }) => {
      const pairs = Object.entries(labels).map(([label, text]) => `${label}="${escaped(text)}"`)
      return `${name}${suffix}${pairs.length > 0 ? `{${pairs.join(',')}}` : ''} ${value}`
    }),
    '',
  ].join('\n')
}

const SUFFIXES: Partial<Record<Family['type'], string>> = { counter: '_total', info: '_info' }

const escaped = (text: string): string => text.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n')
