import { quoteIdentifier } from '../../../engine/names.ts'
import { parseError } from '../data-api-error.ts'
import type { Name } from '../schema/types.ts'

/** Quotes an identifier. Names must not get into SQL in any other way. */
export function quote(name: string): string {
  if (name.includes('\0')) throw parseError('A name cannot contain a NUL character', 'unexpected "\\0"')
  return quoteIdentifier(name)
}

export const qualified = ({ schema, name }: Name): string => `${quote(schema)}.${quote(name)}`

/** Types whose names are words of SQL's grammar, not names of the catalogue. */
const GRAMMAR_TYPES =
  /^(int|integer|smallint|bigint|real|float|double precision|dec|decimal|numeric|boolean|interval|varchar|(bit|n?char|(national )?(char|character))( varying)?|(time|timestamp)( with(out)? time zone)?)$/

/** The type of a cast, which a caller names without quotes. */
export function castType(text: string): string {
  const type = text.toLowerCase().replace(/ +/g, ' ')
  // Postgres fails with an internal error if a value stays of this type.
  if (type === 'unknown') throw parseError('Cannot cast to the type "unknown"', 'unexpected "unknown" expecting a type')
  return GRAMMAR_TYPES.test(type) ? type : quote(type)
}

/** Stands for the text of the body among the parameters of a statement, which can then be used again for other bodies. */
export const BODY = Symbol('body')

/** Collects the parameters of a statement: values never get into its text. */
export class Parameters {
  readonly values: (string | null | typeof BODY)[] = []
  private readonly typed = new Map<string, string>()

  /** A parameter of the type that Postgres infers from its place. */
  add(value: string | null | typeof BODY): string {
    this.values.push(value)
    return `$${this.values.length}`
  }

  /** A parameter of a given type. Equal values share a parameter, so that Postgres recognizes equal expressions in GROUP BY. */
  addTyped(value: string, type: string): string {
    const key = `${type} ${value}`
    const known = this.typed.get(key)
    if (known !== undefined) return known
    const placeholder = `${this.add(value)}::${type}`
    this.typed.set(key, placeholder)
    return placeholder
  }
}

/** The text of an array with these elements. */
export const arrayText = (values: readonly string[]): string =>
  `{${values.map((value) => `"${value.replace(/["\\]/g, '\\$&')}"`).join(',')}}`
