import { arrayToJson } from './arrays.ts'

/** Turns the text that Postgres sends for one value into JSON text. */
export type Encode = (text: string) => string

const asText: Encode = (text) => JSON.stringify(text)
const asIs: Encode = (text) => text
const asBoolean: Encode = (text) => (text === 't' ? 'true' : 'false')
const asFloat: Encode = (text) => (/^-?[0-9]/.test(text) ? text : asText(text))
const asBigInteger: Encode = (text) => (Number.isSafeInteger(Number(text)) ? text : asText(text))

const scalars = new Map<number, Encode>([
  [16, asBoolean],
  [20, asBigInteger],
  [21, asIs],
  [23, asIs],
  [26, asIs],
  [114, asIs],
  [700, asFloat],
  [701, asFloat],
  [3802, asIs],
])

/** Built-in array types whose elements are separated by commas, and the type of their elements. */
const arrayElements = new Map<number, number>([
  [143, 142],
  [199, 114],
  [271, 5069],
  [629, 628],
  [651, 650],
  [719, 718],
  [775, 774],
  [791, 790],
  [1000, 16],
  [1001, 17],
  [1002, 18],
  [1003, 19],
  [1005, 21],
  [1007, 23],
  [1008, 24],
  [1009, 25],
  [1010, 27],
  [1011, 28],
  [1012, 29],
  [1014, 1042],
  [1015, 1043],
  [1016, 20],
  [1017, 600],
  [1018, 601],
  [1019, 602],
  [1021, 700],
  [1022, 701],
  [1027, 604],
  [1028, 26],
  [1040, 829],
  [1041, 869],
  [1115, 1114],
  [1182, 1082],
  [1183, 1083],
  [1185, 1184],
  [1187, 1186],
  [1231, 1700],
  [1270, 1266],
  [1561, 1560],
  [1563, 1562],
  [2207, 2202],
  [2208, 2203],
  [2209, 2204],
  [2210, 2205],
  [2211, 2206],
  [2949, 2970],
  [2951, 2950],
  [3221, 3220],
  [3643, 3614],
  [3645, 3615],
  [3735, 3734],
  [3770, 3769],
  [3807, 3802],
  [3905, 3904],
  [3907, 3906],
  [3909, 3908],
  [3911, 3910],
  [3913, 3912],
  [3927, 3926],
  [4073, 4072],
  [4090, 4089],
  [4097, 4096],
])

export function encoderOf(typeId: number): Encode {
  const element = arrayElements.get(typeId)
  if (element === undefined) return scalars.get(typeId) ?? asText
  const encode = scalars.get(element) ?? asText
  return (text) => arrayToJson(text, encode)
}

/** A JSON value as the text of a query parameter; Postgres gives it the type the statement asks for. */
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
