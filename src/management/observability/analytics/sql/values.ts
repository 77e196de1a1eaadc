import { type SQL, sql } from 'drizzle-orm'
import type { Signature, Type, Value } from './functions.ts'
import { QueryError } from './tokens.ts'

const PG_TYPES: Record<Type, SQL> = {
  text: sql`text`,
  number: sql`numeric`,
  time: sql`timestamptz`,
  boolean: sql`boolean`,
  attributes: sql`jsonb`,
  interval: sql`interval`,
  null: sql`text`,
}
/** Returns the SQL of a value; a null gets a type. */
export const typed = ({ sql: value, type }: Value): SQL => (type === 'null' ? sql`null::text` : value)

export function applyFunction(
  name: string,
  { takes, more, gives, sql: write }: Signature,
  values: readonly Value[],
): Value {
  const isCountValid = values.length === takes.length || (more && values.length > takes.length)
  if (!isCountValid)
    throw new QueryError(`${name} takes ${takes.length} values${more ? ' or more' : ''}, not ${values.length}`)
  return { type: gives, sql: write(...values.map((value, n) => cast(value, takes[n] ?? more ?? 'text', name))) }
}

export function only(name: string, values: readonly Value[]): Value {
  const [value] = values
  if (!value || values.length > 1) throw new QueryError(`${name} takes one value`)
  return value
}

export function sumOf(sign: '+' | '-', values: readonly Value[]): Value {
  const [one, other] = values
  if (!one || !other) throw new QueryError(`${sign} takes two values`)
  const type = one.type === 'time' && other.type === 'interval' ? 'time' : 'number'
  const right = type === 'time' ? other.sql : cast(other, 'number', sign)
  return { type, sql: sql`(${cast(one, type, sign)} ${sql.raw(sign)} ${right})` }
}

export function typeOf(values: readonly Value[]): Type {
  const types = values.map(({ type }) => type).filter((type) => type !== 'null')
  return types.find((type) => type === 'time') ?? types[0] ?? 'null'
}

const WORDS: Record<Type, string> = {
  text: 'text',
  number: 'a number',
  time: 'a time',
  boolean: 'a condition',
  attributes: 'all attributes',
  interval: 'an interval',
  null: 'null',
}

export function cast(value: Value, type: Type, name: string): SQL {
  if (value.type === 'null') return sql`null::${PG_TYPES[type]}`
  if (value.type !== type) throw wrongType(name, WORDS[type], value)
  return value.sql
}

export function wrongType(name: string, expected: string, { type }: Value): QueryError {
  const hint = type === 'text' && expected === WORDS.number ? ': convert the text with toInt64OrZero(…)' : ''
  return new QueryError(`${name} takes ${expected}, not ${WORDS[type]}${hint}`)
}
