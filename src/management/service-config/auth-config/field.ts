import * as z from 'zod'
import { Text } from '../../../platform/http/common-values.ts'

export type Value = string | number | boolean

/** A field of the configuration. The schemas, the OpenAPI document, the defaults and the list of secrets derive from the fields. */
export interface Field<V extends Value = Value> {
  schema: z.ZodType<V>
  /** The schema of replies, without limits: stored values are returned even if the limits have become narrower. */
  replySchema: z.ZodType<V>
  /** The value of a field that is not set. */
  default: V | null
  /** Set if the value is encrypted in the database and returned as a digest. */
  secret?: true
  /** Describes the required format of a secret, which a digest never has. */
  format?: string
  /** Set if PATCH accepts only the default value. */
  readOnly?: true
  /** Set if PATCH does not accept null, which resets other fields to their default. */
  notNull?: true
  /** Set if the schema of replies does not allow null. */
  neverNull?: true
}
export type Fields = Record<string, Field>

export const INT16_MAX = 32_767
export const INT32_MAX = 2_147_483_647
const TEXT_LENGTH_MAX = 2_000
const SECRET_LENGTH_MAX = 8_000
/** The maximum length of comma-separated lists. */
export const LIST_LENGTH_MAX = 20_000

// Longer texts are not matched with patterns.
export const Short = Text.max(TEXT_LENGTH_MAX, { abort: true })
const SecretText = Text.max(SECRET_LENGTH_MAX, { abort: true })

// All fields of a kind share a schema, because the start of the Worker waits for the creation of every schema.
const Flag = z.boolean()
const Whole = z.int()
const ReplyText = z.string()
const ReplySecret = ReplyText.meta({ description: 'HMAC-SHA256 of the value, keyed with the project ref, in hex' })

export const flag = (value = false): Field<boolean> => ({ schema: Flag, replySchema: Flag, default: value })
export const unsetFlag: Field<boolean> = { schema: Flag, replySchema: Flag, default: null }
export const whole = (min: number, max: number, value: number): Field<number> => ({
  schema: Whole.min(min).max(max),
  replySchema: Whole,
  default: value,
})
export const hours: Field<number> = {
  schema: z.number().min(0).max(INT32_MAX).meta({ description: 'Hours; 0 for no limit' }),
  replySchema: z.number(),
  default: 0,
}
export const text = (schema: z.ZodType<string> = Short, value: string | null = null): Field<string> => ({
  schema,
  replySchema: ReplyText,
  default: value,
})
export const choice = <const V extends string>(values: readonly V[], value: V | null): Field<V> => {
  const schema = z.enum(values) as unknown as z.ZodType<V>
  return { schema, replySchema: schema, default: value }
}
/** Recognizes the digest of a secret, which clients may send back. */
export const isDigest = (text: unknown): boolean => typeof text === 'string' && /^[0-9a-f]{64}$/.test(text)

export const secret = (): Field<string> => ({
  schema: SecretText,
  replySchema: ReplySecret,
  default: null,
  secret: true,
})

export const secretOf = (hasFormat: (text: string) => boolean, format: string): Field<string> => ({
  ...secret(),
  schema: SecretText.refine((text) => hasFormat(text) || isDigest(text), format),
  format,
})

export const readOnly = <V extends Value>(field: Field<V>): Field<V> => ({ ...field, readOnly: true })
export const notNull = <V extends Value>(field: Field<V>): Field<V> => ({ ...field, notNull: true, neverNull: true })
export const neverNull = <V extends Value>(field: Field<V>): Field<V> => ({ ...field, neverNull: true })

type Family<P extends string, N extends string, S extends string, F> = {
  [K in keyof F & string as K extends '' ? `${P}${N}${S}` : `${P}${N}_${K}${S}`]: F[K]
}

/** Creates the same fields for each name: `<prefix><name>_<field><suffix>`, without `_<field>` if the field is empty. */
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
  // The type has the names that the code above creates.
  return Object.fromEntries(entries) as Family<P, N, S, F>
}
