import type { JsonPayload } from '../request/payload.ts'
import type { Parameter, Routine } from '../schema/types.ts'
import { arrayText, BODY, type Parameters, qualified, quote } from './builder.ts'

/** A function, and the names of functions of its rows, which can be called as columns where the function is called. */
export type Called = Routine & { computed?: readonly string[] }

type Arguments = readonly (readonly [name: string, value: string])[]

/** SQL of a call with arguments of the query string, each as text. */
export function callWithArguments(params: Parameters, routine: Called, args: Arguments): string {
  const given = routine.parameters.flatMap((parameter) => {
    const values = args.filter(([name]) => name === parameter.name).map(([, value]) => value)
    return values.length === 0 ? [] : [{ parameter, value: textOf(parameter, values) }]
  })
  const list = given.map(({ parameter, value }) => `${assigned(parameter)}${params.add(value)}::${parameter.type}`)
  return selectSql(routine, `${qualified(routine)}(${list.join(', ')})`)
}

/** The text of an argument. A repeated one is a list for a variadic parameter; for any other, the last value counts. */
const textOf = ({ isVariadic }: Parameter, values: readonly string[]): string =>
  isVariadic && !(values.length === 1 && values[0]?.startsWith('{')) ? arrayText(values) : (values.at(-1) ?? '')

/** SQL of a call whose arguments are members of a JSON object, or of the first object of an array. */
export function callWithBody(
  params: Parameters,
  routine: Called,
  { isArray }: JsonPayload,
  names: readonly string[],
): string {
  const given = routine.parameters.filter(({ name }) => names.includes(name))
  if (given.length === 0) return selectSql(routine, `${qualified(routine)}()`)
  const list = given.map((parameter) => `${assigned(parameter)}pgrst_body.${quote(parameter.name)}`)
  const definition = given.map((parameter) => `${quote(parameter.name)} ${parameter.type}`).join(', ')
  const records = `${isArray ? 'json_to_recordset' : 'json_to_record'}(${params.add(BODY)}::json)`
  const body = `(SELECT * FROM ${records} AS _(${definition}) LIMIT 1) AS pgrst_body`
  return selectSql(routine, `${qualified(routine)}(${list.join(', ')})`, body)
}

/** SQL of a call of a function whose only parameter takes the body as it is. */
export function callWithWholeBody(params: Parameters, routine: Called): string {
  const [parameter] = routine.parameters
  return selectSql(routine, `${qualified(routine)}(${params.add(BODY)}::${parameter?.type ?? 'text'})`)
}

const assigned = ({ name, isVariadic }: Parameter) => `${isVariadic ? 'VARIADIC ' : ''}${quote(name)} := `

function selectSql({ name, returns, computed = [] }: Called, call: string, body?: string): string {
  const alias = quote(name)
  const columns = ['*', ...computed.map(quote)].map((column) => `${alias}.${column}`)
  if (returns === 'composite')
    return `SELECT ${columns.join(', ')} FROM ${body ? `${body}, LATERAL ` : ''}${call} AS ${alias}`
  return `SELECT ${call} AS pgrst_scalar${body ? ` FROM ${body}` : ''}`
}
