import { type SQL, sql } from 'drizzle-orm'

export type Type = 'text' | 'number' | 'time' | 'boolean' | 'attributes' | 'interval' | 'null'
export interface Value {
  type: Type
  sql: SQL
}

/** What a function takes and gives; with `more`, as many of that type as there are. */
export interface Signature {
  takes: readonly Type[]
  more?: Type
  gives: Type
  /** Writes each of them once: as one stands in another, what is written twice at each level would grow beyond all bounds. */
  sql(...args: SQL[]): SQL
}

const takes =
  (...types: Type[]) =>
  (gives: Type, write: (...args: SQL[]) => SQL): Signature => ({ takes: types, gives, sql: write })

const ofText = takes('text')
const ofTwoTexts = takes('text', 'text')
const ofNumber = takes('number')
const ofTwoNumbers = takes('number', 'number')
const ofTime = takes('time')
const ofTimeAndInterval = takes('time', 'interval')
const ofTimeAndNumber = takes('time', 'number')

/** Null where it is none. */
const numberIn = (text: SQL) => sql`substring(${text} from '^\\s*([-+]?[0-9]{1,18}(?:\\.[0-9]{1,9})?)\\s*$')::numeric`

const start = (interval: string) =>
  ofTime('time', (at) => sql`date_bin(${interval}::interval, ${at}, '2000-01-03Z'::timestamptz)`)
const epoch = (factor: number) => ofTime('number', (at) => sql`floor(extract(epoch from ${at}) * ${factor}::int)`)
const ago = (unit: string) =>
  ofTimeAndNumber('time', (at, count) => sql`(${at} - ${count}::float8 * ${`1 ${unit}`}::interval)`)

const lower = ofText('text', (text) => sql`lower(${text})`)
const upper = ofText('text', (text) => sql`upper(${text})`)
const position = ofTwoTexts('number', (text, part) => sql`strpos(${text}, ${part})::numeric`)
const positionAnyCase = ofTwoTexts('number', (text, part) => sql`strpos(lower(${text}), lower(${part}))::numeric`)
const starts = ofTwoTexts('boolean', (text, part) => sql`starts_with(${text}, ${part})`)
const ends = ofTwoTexts('boolean', (text, part) => sql`starts_with(reverse(${text}), reverse(${part}))`)
const matches = ofTwoTexts('boolean', (text, form) => sql`(${text} ~ ${form})`)
const number = ofText('number', numberIn)
const numberOrZero = ofText('number', (text) => sql`coalesce(${numberIn(text)}, 0)`)
const earlier = ofTimeAndInterval('time', (at, interval) => sql`(${at} - ${interval})`)
const later = ofTimeAndInterval('time', (at, interval) => sql`(${at} + ${interval})`)
const part: Signature = {
  takes: ['text', 'number'],
  more: 'number',
  gives: 'text',
  sql: (text, from, count) =>
    count ? sql`substr(${text}, ${from}::int, greatest(${count}::int, 0))` : sql`substr(${text}, ${from}::int)`,
}

const NUMBERS = ['int8', 'int16', 'int32', 'int64', 'uint8', 'uint16', 'uint32', 'uint64', 'float32', 'float64']

/** Names in lower case, as ClickHouse or BigQuery call them. Aggregates, and what takes any type, are written elsewhere. */
export const FUNCTIONS: Record<string, Signature> = {
  ...{ lower, upper, lowerutf8: lower, upperutf8: upper, position, strpos: position },
  ...{ positioncaseinsensitive: positionAnyCase, positioncaseinsensitiveutf8: positionAnyCase },
  ...{ startswith: starts, starts_with: starts, endswith: ends, ends_with: ends },
  ...{ match: matches, regexp_contains: matches, substring: part, substr: part },
  length: ofText('number', (text) => sql`length(${text})::numeric`),
  trim: ofText('text', (text) => sql`trim(${text})`),
  concat: { takes: ['text'], more: 'text', gives: 'text', sql: (...texts) => sql`concat(${sql.join(texts, sql`, `)})` },
  '||': ofTwoTexts('text', (one, other) => sql`(${one} || ${other})`),
  like: ofTwoTexts('boolean', (text, form) => sql`(${text} like ${form})`),
  ilike: ofTwoTexts('boolean', (text, form) => sql`(${text} ilike ${form})`),
  empty: ofText('boolean', (text) => sql`(coalesce(${text}, '') = '')`),
  notempty: ofText('boolean', (text) => sql`(coalesce(${text}, '') <> '')`),
  ...Object.fromEntries(
    NUMBERS.flatMap((type) => [
      [`to${type}`, number],
      [`to${type}ornull`, number],
      [`to${type}orzero`, numberOrZero],
    ]),
  ),
  '*': ofTwoNumbers('number', (one, other) => sql`(${one} * ${other})`),
  '/': ofTwoNumbers('number', (one, other) => sql`(${one} / nullif(${other}, 0))`),
  '%': ofTwoNumbers('number', (one, other) => sql`(${one} % nullif(${other}, 0))`),
  floor: ofNumber('number', (value) => sql`floor(${value})`),
  ceil: ofNumber('number', (value) => sql`ceil(${value})`),
  abs: ofNumber('number', (value) => sql`abs(${value})`),
  round: {
    takes: ['number'],
    more: 'number',
    gives: 'number',
    sql: (value, digits) => sql`round(${value}, ${digits ?? sql`0`}::int)`,
  },
  and: takes('boolean', 'boolean')('boolean', (one, other) => sql`(${one} and ${other})`),
  or: takes('boolean', 'boolean')('boolean', (one, other) => sql`(${one} or ${other})`),
  not: takes('boolean')('boolean', (condition) => sql`(not ${condition})`),
  tounixtimestamp: epoch(1),
  tounixtimestamp64milli: epoch(1_000),
  tounixtimestamp64micro: epoch(1_000_000),
  unix_seconds: epoch(1),
  unix_millis: epoch(1_000),
  unix_micros: epoch(1_000_000),
  tostartofminute: start('1 minute'),
  tostartoffiveminutes: start('5 minutes'),
  tostartoftenminutes: start('10 minutes'),
  tostartoffifteenminutes: start('15 minutes'),
  tostartofhour: start('1 hour'),
  tostartofday: start('1 day'),
  tostartofinterval: ofTimeAndInterval(
    'time',
    (at, interval) => sql`date_bin(${interval}, ${at}, '2000-01-03Z'::timestamptz)`,
  ),
  ...{ timestamp_sub: earlier, datetime_sub: earlier, timestamp_add: later, datetime_add: later },
  subtractseconds: ago('second'),
  subtractminutes: ago('minute'),
  subtracthours: ago('hour'),
  subtractdays: ago('day'),
}

const ofAny = (gives: Type, write: (value: SQL) => SQL) => ({ gives, write })
const distinct = ofAny('number', (value) => sql`count(distinct ${value})`)

/** Aggregates of values of any type, and what they give: undefined for the type of the value. */
export const AGGREGATES_OF_ANY: Record<string, { gives?: Type; write(value: SQL): SQL }> = {
  count: ofAny('number', (value) => sql`count(${value})`),
  uniq: distinct,
  uniqexact: distinct,
  approx_count_distinct: distinct,
  min: { write: (value) => sql`min(${value})` },
  max: { write: (value) => sql`max(${value})` },
  any: { write: (value) => sql`min(${value})` },
  any_value: { write: (value) => sql`min(${value})` },
}

export const AGGREGATES: Record<string, Signature> = {
  countif: takes('boolean')('number', (condition) => sql`count(*) filter (where ${condition})`),
  sum: ofNumber('number', (value) => sql`sum(${value})`),
  avg: ofNumber('number', (value) => sql`avg(${value})`),
  sumif: takes('number', 'boolean')('number', (value, when) => sql`sum(${value}) filter (where ${when})`),
  avgif: takes('number', 'boolean')('number', (value, when) => sql`avg(${value}) filter (where ${when})`),
  quantile: ofTwoNumbers(
    'number',
    (share, value) => sql`percentile_cont(${share}::float8) within group (order by ${value}::float8)`,
  ),
}
