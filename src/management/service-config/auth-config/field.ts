import * as z from 'zod'
import { Text } from '../../../platform/http/common-values.ts'

export type Value = string | number | boolean

/** One field of the configuration. Of the table of them are made: schemas, document, defaults, and what is a secret. */
export interface Field<V extends Value = Value> {
  schema: z.ZodType<V>
  /** The same without its bounds: what was kept is told even if they have become narrower. */
  told: z.ZodType<V>
  /** Holds where nothing is set. */
  default: V | null
  /** Sealed in the database; read as a digest. */
  secret?: true
  /** What a secret must be where not each text is one: a digest never fits it. */
  form?: string
  /** PATCH does not know it. */
  readOnly?: true
  /** PATCH takes no null, which elsewhere brings the default back. */
  notNull?: true
  /** The reply's schema has no null. */
  alwaysThere?: true
}
export type Fields = Record<string, Field>

export const INT16_MAX = 32_767
export const INT32_MAX = 2_147_483_647
const TEXT_LENGTH_MAX = 2_000
const SECRET_LENGTH_MAX = 8_000
/** Of comma-separated lists. */
export const LIST_LENGTH_MAX = 20_000

export const Short = Text.max(TEXT_LENGTH_MAX)
const SecretText = Text.max(SECRET_LENGTH_MAX)

// Shared by all fields of their kind: each start of the Worker waits until every schema has been made.
const Flag = z.boolean()
const Whole = z.int()
const Told = z.string()
const ToldSecret = Told.meta({ description: 'HMAC-SHA256 of what was set, keyed with the project ref, in hex' })

export const flag = (value = false): Field<boolean> => ({ schema: Flag, told: Flag, default: value })
export const unsetFlag: Field<boolean> = { schema: Flag, told: Flag, default: null }
export const whole = (min: number, max: number, value: number): Field<number> => ({
  schema: Whole.min(min).max(max),
  told: Whole,
  default: value,
})
export const hours: Field<number> = {
  schema: z.number().min(0).max(INT32_MAX).meta({ description: 'Hours; 0 for no end' }),
  told: z.number(),
  default: 0,
}
export const text = (schema: z.ZodType<string> = Short, value: string | null = null): Field<string> => ({
  schema,
  told: Told,
  default: value,
})
export const choice = <const V extends string>(values: readonly V[], value: V | null): Field<V> => {
  const schema = z.enum(values) as unknown as z.ZodType<V>
  return { schema, told: schema, default: value }
}
/** What is told of a secret, and may be sent back. */
export const isDigest = (text: unknown): boolean => typeof text === 'string' && /^[0-9a-f]{64}$/.test(text)

export const secret = (): Field<string> => ({
  schema: SecretText,
  told: ToldSecret,
  default: null,
  secret: true,
})

export const secretOf = (fits: (text: string) => boolean, form: string): Field<string> => ({
  ...secret(),
  schema: SecretText.refine((text) => fits(text) || isDigest(text), form),
  form,
})

export const readOnly = <V extends Value>(field: Field<V>): Field<V> => ({ ...field, readOnly: true })
export const notNull = <V extends Value>(field: Field<V>): Field<V> => ({ ...field, notNull: true, alwaysThere: true })
export const alwaysThere = <V extends Value>(field: Field<V>): Field<V> => ({ ...field, alwaysThere: true })

type Family<P extends string, N extends string, S extends string, F> = {
  [K in keyof F & string as K extends '' ? `${P}${N}${S}` : `${P}${N}_${K}${S}`]: F[K]
}

/** The same fields for each name: `<prefix><name>_<field><suffix>`, and without `_<field>` where that is empty. */
export function family<P extends string, const N extends string, F extends Fields, const S extends string = ''>(
  prefix: P,
  names: readonly N[],
  fieldsOf: (name: N) => F,
  suffix?: S,
): Family<P, N, S, F> {
  const entries = names.flatMap((name) =>
    Object.entries(fieldsOf(name)).map(([field, value]) => [
      `${prefix}${name}${field && `_${field}`}${suffix ?? ''}`,
      value,
    ]),
  )
  // The type says the same of the names as the line above.
  return Object.fromEntries(entries) as Family<P, N, S, F>
}
