import { type Catalogue, isView, type Relation, type Type } from '../../../services/data-api/openapi/catalogue.ts'
import { limitLength } from '../../../services/data-api/openapi/openapi.ts'
import { quote, type Union } from './print-types.ts'

const SCALARS: Readonly<Record<string, readonly string[]>> = {
  boolean: ['bool'],
  number: ['int2', 'int4', 'int8', 'float4', 'float8', 'numeric'],
  string: [
    ...['text', 'varchar', 'bpchar', 'bytea', 'uuid', 'citext', 'vector'],
    ...['date', 'time', 'timetz', 'timestamp', 'timestamptz', 'interval'],
  ],
  Json: ['json', 'jsonb'],
  undefined: ['void'],
  'Record<string, unknown>': ['record'],
}
const SCALAR = new Map(Object.entries(SCALARS).flatMap(([type, names]) => names.map((name) => [name, type] as const)))

const UNKNOWN: Union = ['unknown']

/** The length that indentation and punctuation add to a printed part, roughly. */
const PART_OVERHEAD = 16

/** The group of `Database` to which a relation belongs. */
export const groupOf = (kind: Relation['kind']): 'Tables' | 'Views' => (isView({ kind }) ? 'Views' : 'Tables')

export interface Types {
  typeOf(id: number): Union
  find(id: number): Type | undefined
  /** Adds the length of parts that a small schema can repeat very often, and throws once it is too large. */
  withinLimit<Parts extends readonly string[]>(parts: Parts): Parts
}

/**
 * Resolves types by id. Enums of schemas that are not printed are spelled out; their rows and types without JSON form are `unknown`.
 * The length of a type counts at each use: every column may repeat a long list of values.
 */
export function resolveTypes({ schemas, types }: Catalogue): Types {
  const byId = new Map(types.map((type) => [type.id, type]))
  const printedSchemas = new Set(schemas)

  const reference = (schema: string, group: string, name: string) =>
    `Database[${quote(schema)}]["${group}"][${quote(name)}]`

  const addLength = limitLength()
  function withinLimit<Parts extends readonly string[]>(parts: Parts): Parts {
    for (const part of parts) addLength(part.length + PART_OVERHEAD)
    return parts
  }

  function resolve(id: number): Union {
    const type = byId.get(id)
    if (!type) return UNKNOWN
    const { schema, name, kind, values } = type
    if (type.base) return resolve(type.base)
    if (type.element) return listOfType(type.element)
    if (values) return printedSchemas.has(schema) ? [reference(schema, 'Enums', name)] : values.map(quote)
    if (kind && !printedSchemas.has(schema)) return UNKNOWN
    if (kind === 'c') return [reference(schema, 'CompositeTypes', name)]
    if (kind) return [`${reference(schema, groupOf(kind), name)}["Row"]`]
    const scalar = SCALAR.get(name)
    return scalar ? [scalar] : UNKNOWN
  }

  const listOfType = (element: number): Union => {
    const members = resolve(element)
    return [members.length > 1 ? `(${members.join(' | ')})[]` : `${members[0]}[]`]
  }

  return { typeOf: (id) => withinLimit(resolve(id)), find: (id) => byId.get(id), withinLimit }
}

/** Adds null, which `unknown` already includes. */
export const orNull = (type: Union): Union => (type[0] === 'unknown' ? type : [...type, 'null'])

/** Removes null from `Json` for columns that are not null. */
export const notNull = (type: Union): Union => (type[0] === 'Json' ? ['NonNullable<Json>'] : type)
