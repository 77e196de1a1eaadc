import { type SQL, sql } from 'drizzle-orm'

export type Type = 'text' | 'number' | 'time' | 'boolean' | 'attributes' | 'interval' | 'null'
export interface Value {
  type: Type
  sql: SQL
}

/** The parameter and result types of a function; `more` is the type of further optional arguments. */
export interface Signature {
  takes: readonly Type[]
  more?: Type
  gives: Type
  /** Uses each argument once: with nesting, duplicates would grow exponentially. */
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

/** Parses a number; null if the text is not a number. */
const numberIn = (text: SQL) => sql`substring(${text} from '^\\s*([-+]?[0-9]{1,18}(?:\\.[0-9]{1,9})?)\\s*$')::numeric`

const start = (interval: string) =>
  ofTime('time', (at) => sql`date_bin(${interval}::interval, ${at}, '2000-01-03Z'::timestamptz)`)
const epoch = (factor: number) => ofTime('number', (at) => sql`floor(extract(epoch from ${at}) * ${factor}::int)`)
const ago = (unit: string) =>
  ofTimeAndNumber('time', (at, count) => sql`(${at} - ${count}::float8 * ${`1 ${unit}`}::interval)`)

const lower = ofText('text', (text) => sql`lower(${text})`)
const upper = ofText('text', (text) => sql`upper(${text})`)
const position = ofTwoTexts('number', (text, substring) => sql`strpos(${text}, ${substring})::numeric`)
const positionAnyCase = ofTwoTexts(
  'number',
  (text, substring) => sql`strpos(lower(${text}), lower(${substring}))::numeric`,
)
const startsWith = ofTwoTexts('boolean', (text, substring) => sql`starts_with(${text}, ${substring})`)
const endsWith = ofTwoTexts('boolean', (text, substring) => sql`starts_with(reverse(${text}), reverse(${substring}))`)
const matches = ofTwoTexts('boolean', (text, pattern) => sql`(${text} ~ ${pattern})`)
const number = ofText('number', numberIn)
const numberOrZero = ofText('number', (text) => sql`coalesce(${numberIn(text)}, 0)`)
const subtract = ofTimeAndInterval('time', (at, interval) => sql`(${at} - ${interval})`)
const add = ofTimeAndInterval('time', (at, interval) => sql`(${at} + ${interval})`)
const substring: Signature = {
  takes: ['text', 'number'],
  more: 'number',
  gives: 'text',
  sql: (text, from, count) =>
    count ? sql`substr(${text}, ${from}::int, greatest(${count}::int, 0))` : sql`substr(${text}, ${from}::int)`,
}

const NUMBERS = ['int8', 'int16', 'int32', 'int64', 'uint8', 'uint16', 'uint32', 'uint64', 'float32', 'float64']

/** Functions of ClickHouse and BigQuery by lower-case name. Aggregates and functions of any type are elsewhere. */
export const FUNCTIONS: Record<string, Signature> = {
  ...{ lower, upper, lowerutf8: lower, upperutf8: upper, position, strpos: position },
  ...{ positioncaseinsensitive: positionAnyCase, positioncaseinsensitiveutf8: positionAnyCase },
  ...{ startswith: startsWith, starts_with: startsWith, endswith: endsWith, ends_with: endsWith },
  ...{ match: matches, regexp_contains: matches, substring: substring, substr: substring },
  length: ofText('number', (text) => sql`length(${text})::numeric`),
  trim: ofText('text', (text) => sql`trim(${text})`),
  concat: { takes: ['text'], more: 'text', gives: 'text', sql: (...texts) => sql`concat(${sql.join(texts, sql`, `)})` },
  '||': ofTwoTexts('text', (one, other) => sql`(${one} || ${other})`),
  like: ofTwoTexts('boolean', (text, pattern) => sql`(${text} like ${pattern})`),
  ilike: ofTwoTexts('boolean', (text, pattern) => sql`(${text} ilike ${pattern})`),
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
  ...{ timestamp_sub: subtract, datetime_sub: subtract, timestamp_add: add, datetime_add: add },
  subtractseconds: ago('second'),
  subtractminutes: ago('minute'),
  subtracthours: ago('hour'),
  subtractdays: ago('day'),
}

const ofAny = (gives: Type, write: (value: SQL) => SQL) => ({ gives, write })
const distinct = ofAny('number', (value) => sql`count(distinct ${value})`)

/** Aggregates of values of any type; `gives` is undefined if the result has the type of the value. */
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
