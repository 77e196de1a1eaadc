import { arrayToJson } from './arrays.ts'

/** Converts the text that Postgres sends for a value to JSON text. */
export type Encode = (text: string) => string

export const asText: Encode = (text) => JSON.stringify(text)
export const asIs: Encode = (text) => text
const asBoolean: Encode = (text) => (text === 't' ? 'true' : 'false')
const asFloat: Encode = (text) => (/^-?[0-9]/.test(text) ? text : asText(text))
const asBigInteger: Encode = (text) => (Number.isSafeInteger(Number(text)) ? text : asText(text))

/** Types with values that are not JSON strings, each with its array type. */
const TYPES: readonly (readonly [type: number, array: number, encode: Encode])[] = [
  [16, 1000, asBoolean],
  [20, 1016, asBigInteger],
  [21, 1005, asIs],
  [23, 1007, asIs],
  [26, 1028, asIs],
  [114, 199, asIs],
  [700, 1021, asFloat],
  [701, 1022, asFloat],
  [3802, 3807, asIs],
]

/** The other built-in array types with elements separated by commas. */
const TEXT_ARRAYS = [
  143, 271, 629, 651, 719, 775, 791, 1001, 1002, 1003, 1008, 1009, 1010, 1011, 1012, 1014, 1015, 1017, 1018, 1019, 1027,
  1040, 1041, 1115, 1182, 1183, 1185, 1187, 1231, 1270, 1561, 1563, 2207, 2208, 2209, 2210, 2211, 2949, 2951, 3221,
  3643, 3645, 3735, 3770, 3905, 3907, 3909, 3911, 3913, 3927, 4073, 4090, 4097,
]

const arrayOf =
  (encode: Encode): Encode =>
  (text) =>
    arrayToJson(text, encode)

const ENCODERS = new Map<number, Encode>([
  ...TYPES.flatMap(([type, array, encode]) => [[type, encode] as const, [array, arrayOf(encode)] as const]),
  ...TEXT_ARRAYS.map((array) => [array, arrayOf(asText)] as const),
])

export const encoderOf = (typeId: number): Encode => ENCODERS.get(typeId) ?? asText

/** Converts a JSON value to the text of a query parameter; Postgres infers its type from the statement. */
export function parameterText(value: unknown): string | null {
  if (value === null || value === undefined) return null
  if (Array.isArray(value) && isScalarArray(value)) return arrayLiteral(value)
  if (typeof value === 'object') return JSON.stringify(value)
  return String(value)
}

function isScalarArray(values: readonly unknown[]): boolean {
  return values.every((value) =>
    Array.isArray(value) ? isScalarArray(value) : value === null || typeof value !== 'object',
  )
}

function arrayLiteral(values: readonly unknown[]): string {
  const elements = values.map((value) => {
    if (value === null || value === undefined) return 'NULL'
    if (Array.isArray(value)) return arrayLiteral(value)
    return `"${String(value).replace(/["\\]/g, '\\$&')}"`
  })
  return `{${elements.join(',')}}`
}
