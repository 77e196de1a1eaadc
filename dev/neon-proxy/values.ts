import type { Field } from './text-query.ts'

export interface TextRows {
  fields: Field[]
  rows: (string | null)[][]
  /** Leave every value as the text that Postgres sent. */
  raw: boolean
  asArray: boolean
}

export function toValues({ fields, rows, raw, asArray }: TextRows): unknown[] {
  const readers = fields.map((field) => (raw ? asText : (READERS[field.dataTypeID] ?? asText)))
  return rows.map((row) => {
    const values = row.map((text, i) => (text === null ? null : (readers[i] ?? asText)(text)))
    return asArray ? values : Object.fromEntries(fields.map((field, i) => [field.name, values[i]]))
  })
}

const asText = (text: string): unknown => text

// JSON has no NaN and no infinity, so those stay text.
const asNumber = (text: string) => (Number.isFinite(Number(text)) ? Number(text) : text)

/** By type id: the types that JSON can say without loss. */
const READERS: Record<number, (text: string) => unknown> = {
  16: (text) => text === 't',
  21: asNumber,
  23: asNumber,
  26: asNumber,
  700: asNumber,
  701: asNumber,
  114: JSON.parse,
  3802: JSON.parse,
}
