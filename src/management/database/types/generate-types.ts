import type { Catalogue, Column, Type } from '../../../services/data-api/openapi/catalogue.ts'
import { byName } from '../../../services/data-api/openapi/order.ts'
import { type RelatedRelation, relate } from '../../../services/data-api/openapi/relationships.ts'
import { POSTGREST_VERSION } from '../../../services/data-api/postgrest-version.ts'
import { type ComputedFields, computedFieldsOf, printFunctions, type RowPrinter, rowPrinter } from './functions.ts'
import { indent, key, list, members, object, property, quote, type Union, union } from './print-types.ts'
import { groupOf, notNull, orNull, resolveTypes, type Types } from './resolve-types.ts'
import { SHORTHANDS } from './shorthands.ts'

const JSON_TYPE = `export type Json =
  | string
  | number
  | boolean
  | null
  | { [key: string]: Json | undefined }
  | Json[]
`

/** Version of PostgREST for the types of clients, which decides, for example, whether lists can be spread. */
const CLIENT_OPTIONS = property('__InternalSupabase', members([`PostgrestVersion: ${quote(POSTGREST_VERSION)}`]))

const FIELD_DEPTH = 10
const NAME_DEPTH = 6

/** Generates TypeScript types of the schemas in the format of the public generators. */
export function generateTypes(read: Catalogue): string {
  const catalogue = { ...read, relations: relate(read) }
  const types = resolveTypes(catalogue)
  const schemas = catalogue.schemas.toSorted((a, b) => byName({ name: a }, { name: b }))
  const printed = {
    ...{ catalogue, types },
    computedFields: computedFieldsOf(catalogue, types),
    printRow: rowPrinter(catalogue, types),
  }
  const database = members([...CLIENT_OPTIONS, ...schemas.flatMap((schema) => printSchema(schema, printed))])
  return [
    JSON_TYPE,
    `export type Database = ${database.join('\n')}`,
    SHORTHANDS,
    `export const Constants = ${constants(schemas, catalogue).join('\n')} as const`,
    '',
  ].join('\n')
}

interface Context {
  catalogue: Catalogue & { relations: RelatedRelation[] }
  types: Types
  computedFields: ComputedFields
  printRow: RowPrinter
}

function printSchema(schema: string, context: Context): string[] {
  const { catalogue, types, computedFields } = context
  const own = <Item extends { schema: string; name: string }>(items: readonly Item[]) =>
    items.filter((item) => item.schema === schema).sort(byName)
  const relations = own(catalogue.relations)
  const group = (name: 'Tables' | 'Views') =>
    relations
      .filter(({ kind }) => groupOf(kind) === name)
      .flatMap((relation) => property(key(relation.name), printRelation(relation, computedFields, types)))
  const found = own(catalogue.types)
  return property(
    key(schema),
    members([
      ...property('Tables', members(group('Tables'))),
      ...property('Views', members(group('Views'))),
      ...property('Functions', members(printFunctions(schema, context))),
      ...property('Enums', members(found.flatMap(printEnum))),
      ...property('CompositeTypes', members(found.flatMap((type) => printComposite(type, types)))),
    ]),
  )
}

const literals = (values: readonly string[]) => values.map((value) => quote(value))

const printEnum = ({ name, values }: Type): string[] => (values ? union(key(name), literals(values), NAME_DEPTH) : [])

function printComposite({ name, attributes }: Type, types: Types): string[] {
  // A type without attributes has nothing to print, and nothing can refer to it.
  if (!attributes) return []
  const lines = attributes.flatMap((attribute) =>
    union(key(attribute.name), orNull(types.typeOf(attribute.type)), NAME_DEPTH + 2),
  )
  return property(key(name), members(lines))
}

function printRelation(relation: RelatedRelation, computedFields: ComputedFields, types: Types): string[] {
  const isTable = groupOf(relation.kind) === 'Tables'
  const columns = relation.columns.toSorted(byName)
  const part = (name: string, lines: readonly string[]) => property(name, object(lines))
  const row = columns.flatMap(({ name, type, nullable }) =>
    union(key(name), (nullable ? orNull : notNull)(types.typeOf(type)), FIELD_DEPTH),
  )
  const computed = computedFields(relation).flatMap(([name, type]) => union(name, type, FIELD_DEPTH))
  const printFields = (print: (column: Column, type: Union) => string[]) =>
    columns.flatMap((column) => print(column, types.typeOf(column.type)))
  const insert = isTable ? insertField : writableField
  const update = isTable ? updateField : writableField
  return members([
    ...part('Row', [...row, ...computed]),
    ...(isTable || relation.insertable ? part('Insert', printFields(insert)) : []),
    ...(isTable || relation.updatable ? part('Update', printFields(update)) : []),
    ...printRelationships(relation),
  ])
}

/** Postgres accepts no value for a column that it always generates. */
const isGenerated = ({ identity, generated }: Column): boolean => identity === 'a' || generated

const optional = ({ name }: Column, type: Union) => union(`${key(name)}?`, type, FIELD_DEPTH)
const valueType = ({ nullable }: Column, type: Union): Union => (nullable ? orNull : notNull)(type)

function insertField(column: Column, type: Union): string[] {
  if (isGenerated(column)) return optional(column, ['never'])
  const { nullable, identity, hasDefault } = column
  if (nullable || identity || hasDefault) return optional(column, valueType(column, type))
  return union(key(column.name), valueType(column, type), FIELD_DEPTH)
}

const updateField = (column: Column, type: Union): string[] =>
  optional(column, isGenerated(column) ? ['never'] : valueType(column, type))

const writableField = (column: Column, type: Union): string[] =>
  optional(column, column.writable ? orNull(type) : ['never'])

/** Leaves out foreign keys to other schemas: a client works on one schema at a time. */
function printRelationships({ schema, relationships }: RelatedRelation): string[] {
  const sameSchema = relationships.filter((one) => one.schema === schema)
  if (sameSchema.length === 0) return ['Relationships: []']
  const printed = sameSchema.flatMap(({ name, relation, columns, referenced, oneToOne }) => [
    '{',
    ...indent([
      `foreignKeyName: ${quote(name)}`,
      `columns: [${literals(columns).join(', ')}]`,
      `isOneToOne: ${oneToOne}`,
      `referencedRelation: ${quote(relation)}`,
      `referencedColumns: [${literals(referenced).join(', ')}]`,
    ]),
    '},',
  ])
  return ['Relationships: [', ...indent(printed), ']']
}

/** Quotes `__proto__`, which as a plain key would set the prototype of the value. */
const valueKey = (name: string): string => (name === '__proto__' ? '["__proto__"]' : key(name))

function constants(schemas: readonly string[], { types }: Catalogue): string[] {
  const entry = (lines: readonly string[]) => [...lines.slice(0, -1), `${lines.at(-1)},`]
  return object(
    schemas.flatMap((schema) => {
      const enums = types
        .filter((type) => type.schema === schema && type.values)
        .sort(byName)
        .flatMap(({ name, values }) => entry(list(valueKey(name), literals(values ?? []), NAME_DEPTH)))
      return entry(property(valueKey(schema), object(entry(property('Enums', object(enums))))))
    }),
  )
}
