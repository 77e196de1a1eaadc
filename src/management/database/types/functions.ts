import type { Catalogue, Relation, Routine } from '../../../services/data-api/openapi/catalogue.ts'
import { byName, compareTexts } from '../../../services/data-api/openapi/order.ts'
import { inputsOf, TEXT_OR_JSON } from '../../../services/data-api/openapi/routines.ts'
import { compact, fields, indent, key, members, property, quote, type Union, union } from './print-types.ts'
import { notNull, orNull, type Types } from './resolve-types.ts'

const NAME_DEPTH = 6

/** Whether a function can be called over HTTP: its arguments have names, or its only argument is an unnamed row, text or JSON. */
function isCallable(routine: Routine, { find }: Types): boolean {
  const inputs = inputsOf(routine)
  if (inputs.every(({ name }) => name !== '')) return true
  const type = find(inputs[0]?.type ?? 0)
  return inputs.length === 1 && type !== undefined && (type.relation > 0 || TEXT_OR_JSON.includes(type.name))
}

export type ComputedFields = (relation: Relation) => (readonly [string, Union])[]

/** Finds computed fields: functions whose only argument is a row of a relation. A column of the same name hides them. */
export function computedFieldsOf({ functions }: Catalogue, types: Types): ComputedFields {
  const byRelation = Map.groupBy(functions, (routine) => {
    const [input, ...others] = inputsOf(routine)
    return others.length === 0 ? types.find(input?.type ?? 0)?.relation : undefined
  })
  return (relation) =>
    (byRelation.get(relation.id) ?? [])
      .filter(({ schema, returnsSet }) => schema === relation.schema && !returnsSet)
      .filter(({ name }) => !relation.columns.some((column) => column.name === name))
      .map(({ name, returns }) => [key(name), orNull(types.typeOf(returns))] as const)
}

/** Returns the printed columns of a relation, if it is in `schema`. `depth` is the indentation of the lines. */
export type RowPrinter = (id: number, schema: string, depth: number) => readonly string[] | undefined

/** Prints the columns of a relation once for all functions that return its rows. */
export function rowPrinter({ relations }: Catalogue, types: Types): RowPrinter {
  const byId = new Map(relations.map((relation) => [relation.id, relation]))
  const printed = new Map<string, readonly string[]>()
  return (id, schema, depth) => {
    const relation = byId.get(id)
    if (relation?.schema !== schema) return undefined
    const cacheKey = `${id} ${depth}`
    const lines = printed.get(cacheKey) ?? print(relation, depth)
    printed.set(cacheKey, lines)
    return types.withinLimit(lines)
  }

  function print({ columns }: Relation, depth: number): string[] {
    return columns
      .toSorted(byName)
      .flatMap(({ name, type, nullable }) => union(key(name), (nullable ? orNull : notNull)(types.typeOf(type)), depth))
  }
}

export function printFunctions(schema: string, context: Context): string[] {
  const { catalogue, types } = context
  const callable = catalogue.functions
    .filter((routine) => routine.schema === schema && isCallable(routine, types))
    .sort((a, b) => byName(a, b) || compareTexts(a.signature, b.signature))
  return Array.from(Map.groupBy(callable, ({ name }) => name)).flatMap(([name, overloads]) => {
    const ambiguousWith = findAmbiguous(overloads)
    const [only, ...others] = overloads.map((routine) => {
      const isAlone = overloads.length === 1
      return signatureOf(routine, { isAlone, ambiguous: ambiguousWith(routine) }, context)
    })
    if (only && others.length === 0) return compact(`${key(name)}: `, only, NAME_DEPTH)
    return [`${key(name)}:`, ...[only ?? [], ...others].flatMap(toUnionMember)]
  })
}

/** Formats a member of a union over several lines. */
function toUnionMember(lines: readonly string[]): string[] {
  const [first = '', ...rest] = compact('| ', lines, NAME_DEPTH + 2)
  return [`  ${first}`, ...indent(indent(rest))]
}

interface Context {
  catalogue: Catalogue
  types: Types
  printRow: RowPrinter
}

interface Overloads {
  isAlone: boolean
  ambiguous: readonly Routine[]
}

function signatureOf(routine: Routine, { isAlone, ambiguous }: Overloads, context: Context): string[] {
  const { types } = context
  const inputs = inputsOf(routine).sort(byName)
  const args = inputs.map(
    ({ name, type, hasDefault }) => [`${key(name)}${hasDefault ? '?' : ''}`, types.typeOf(type)] as const,
  )
  const problem = problemOf(routine, ambiguous, context)
  const depth = NAME_DEPTH + (isAlone ? 2 : 6)
  return [
    ...(args.length > 0 ? fields('Args', args, depth) : ['Args: Record<PropertyKey, never>']),
    ...(problem
      ? types.withinLimit([`Returns: { error: true } & ${quote(problem)}`])
      : printReturns(routine, context, depth)),
    ...printSetof(routine, context),
  ]
}

/** Describes why calls always fail; clients check the type for `{ error: true }`. */
function problemOf(routine: Routine, ambiguous: readonly Routine[], { types }: Context): string | undefined {
  const inputs = inputsOf(routine)
  const [input] = inputs
  const signature = ({ name, signature }: Routine) => `${name}(${signature})`
  if (ambiguous.length > 0) {
    const named = [routine, ...ambiguous.slice(0, AMBIGUOUS_LISTED_MAX)].map(signature).sort(compareTexts)
    const more = ambiguous.length - AMBIGUOUS_LISTED_MAX
    const others = more > 0 ? ` and from ${more} more` : ''
    return `A call cannot tell ${named.join(' from ')}${others}: rename the function or its argument`
  }
  const takesRow = inputs.length === 1 && input?.name === '' && (types.find(input.type)?.relation ?? 0) > 0
  if (takesRow && !rowTypeOf(routine, types)) return `${signature(routine)} takes a row: select it as a column`
  return undefined
}

const AMBIGUOUS_LISTED_MAX = 9

/**
 * Finds overloads that a call cannot distinguish: those with one argument of the same name but another type. An overload without
 * arguments conflicts with one whose only argument is unnamed and optional.
 */
function findAmbiguous(overloads: readonly Routine[]): (routine: Routine) => Routine[] {
  const ofOne = overloads.flatMap((routine) => {
    const [input, ...others] = inputsOf(routine)
    return input && others.length === 0 ? [{ routine, input }] : []
  })
  const byArgument = Map.groupBy(ofOne, ({ input }) => input.name)
  return (routine) => {
    const [input, ...others] = inputsOf(routine)
    if (others.length > 0 || input?.name === '') return []
    return (byArgument.get(input?.name ?? '') ?? [])
      .filter((other) => (input ? other.input.type !== input.type : other.input.hasDefault))
      .map(({ routine }) => routine)
  }
}

const rowTypeOf = ({ returns }: Routine, { find }: Types) => {
  const type = find(returns)
  return type && type.relation > 0 ? type : undefined
}

/** Postgres estimates the number of rows; an estimate of one means a single row. */
const returnsMany = ({ returnsSet, rows }: Routine): boolean => returnsSet && rows > 1

function printReturns(routine: Routine, context: Context, depth: number): string[] {
  const { types } = context
  const row = rowTypeOf(routine, types)
  const isList = routine.returnsSet && (returnsMany(routine) || !row)
  const columns = printColumns(routine, context, depth + 2)
  if (!columns) {
    const type = types.typeOf(routine.returns)
    if (!isList) return union('Returns', type, depth)
    return [`Returns: ${type.length > 1 ? `(${type.join(' | ')})` : type[0]}[]`]
  }
  const lines = property('Returns', members(columns))
  return isList ? [...lines.slice(0, -1), '}[]'] : lines
}

/** Prints the columns of `returns table`, of several `out` arguments, or of a relation in the same schema. */
function printColumns(routine: Routine, { types, printRow }: Context, depth: number): readonly string[] | undefined {
  const outputs = routine.arguments.filter(({ mode }) => /[obt]/.test(mode))
  const isTable = outputs.some(({ mode }) => mode === 't')
  if ((isTable || outputs.length > 1) && outputs.every(({ name }) => name !== '')) {
    return outputs.sort(byName).flatMap(({ name, type }) => union(key(name), types.typeOf(type), depth))
  }
  const row = rowTypeOf(routine, types)
  return row && printRow(row.relation, routine.schema, depth)
}

/** Prints the options by which clients select columns of the result and embed it in rows. */
function printSetof(routine: Routine, { types }: Context): string[] {
  const to = rowTypeOf(routine, types)
  if (!to) return []
  const [input, ...others] = routine.arguments
  const from = others.length === 0 && input ? types.find(input.type) : undefined
  return property(
    'SetofOptions',
    members([
      `from: ${quote(from && from.relation > 0 ? from.name : '*')}`,
      `to: ${quote(to.name)}`,
      `isOneToOne: ${!returnsMany(routine)}`,
      `isSetofReturn: ${routine.returnsSet}`,
    ]),
  )
}
