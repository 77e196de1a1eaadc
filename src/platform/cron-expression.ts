import { Cron, type CronOptions } from 'croner'

/** Cron expressions have the syntax of Cloudflare: five fields, UTC, and weekdays that count from 1 for Sunday. */
const OPTIONS: CronOptions = {
  ...{ timezone: 'UTC', mode: '5-part', alternativeWeekdays: true, sloppyRanges: true, paused: true },
}

const CRON_LENGTH_MAX = 100

/** Allowed syntax of each field: the parser accepts more. */
const FIELDS = [
  { name: 'minute', allowed: /^[\d*,/-]+$/, rule: '0 to 59, with * , - /' },
  { name: 'hour', allowed: /^[\d*,/-]+$/, rule: '0 to 23, with * , - /' },
  { name: 'day of the month', allowed: /^[\d*,/LW-]+$/i, rule: '1 to 31, with * , - / L W' },
  { name: 'month', allowed: /^[\da-z*,/-]+$/i, rule: '1 to 12 or JAN to DEC, with * , - /' },
  { name: 'weekday', allowed: /^[1-7a-z*,/#-]+$/i, rule: '1 (Sunday) to 7 or SUN to SAT, with * , - / L #' },
]

/** Returns why a cron expression is invalid, or undefined. An expression without a run after `now` is invalid. */
export function cronProblem(expression: string, now: Date): string | undefined {
  if (expression.length > CRON_LENGTH_MAX) return `is longer than ${CRON_LENGTH_MAX} characters`
  const texts = expression.trim().split(/\s+/)
  if (texts.length !== FIELDS.length) return 'must have five fields: minute, hour, day of the month, month, weekday'
  const wrong = FIELDS.find(({ allowed }, n) => !allowed.test(texts[n] ?? '') || !isCron(onlyField(texts, n)))
  if (wrong) return `has an invalid ${wrong.name}: it must be ${wrong.rule}`
  return nextCronTime([expression], now) ? undefined : 'never runs: no date matches it'
}

/** The expression with `*` in all fields but one. */
const onlyField = (texts: readonly string[], n: number): string =>
  texts.map((text, at) => (at === n ? text : '*')).join(' ')

function isCron(expression: string): boolean {
  try {
    return new Cron(expression, OPTIONS) !== undefined
  } catch {
    return false
  }
}

/** Returns the first minute after `after` that matches any of the expressions. */
export function nextCronTime(expressions: readonly string[], after: Date): Date | undefined {
  const times = expressions.flatMap((expression) => new Cron(expression, OPTIONS).nextRun(after)?.getTime() ?? [])
  return times.length > 0 ? new Date(Math.min(...times)) : undefined
}

export const isCronTime = (expression: string, minute: Date): boolean => new Cron(expression, OPTIONS).match(minute)
