import type { SchemaDescription } from './catalogue-details.ts'
import { type Callable, callablesOf } from './routines.ts'
import { type Table, type TableColumn, tablesOf } from './tables.ts'

const DOCUMENT_LENGTH_MAX = 16 * 1024 * 1024

export class DocumentTooLarge extends Error {
  override readonly name = 'DocumentTooLarge'
  override readonly message = `at most ${DOCUMENT_LENGTH_MAX} characters`
}

/** Returns a function that adds up the length of a document while it is built. */
export function limitLength(): (length: number) => void {
  let total = 0
  return (length) => {
    total += length
    if (total > DOCUMENT_LENGTH_MAX) throw new DocumentTooLarge()
  }
}

type Entry = readonly [string, object]

const MEDIA = [
  'application/json',
  'application/vnd.pgrst.object+json;nulls=stripped',
  'application/vnd.pgrst.object+json',
]

/**
 * Returns a Swagger 2.0 document in the format of PostgREST. `url` is the address that serves the paths. The length is measured
 * while it is built: every column may repeat a long list of values.
 */
export function openApiOf(schema: string, { catalogue, details }: SchemaDescription, url?: string) {
  const addLength = limitLength()
  const withinLimit = (entries: readonly Entry[]): object => {
    for (const entry of entries) addLength(JSON.stringify(entry).length)
    return Object.fromEntries(entries)
  }
  const tables = tablesOf(catalogue, details)
  const callables = callablesOf(catalogue, details)
  const { title, description = '' } = heading(details.comment)
  return {
    swagger: '2.0',
    info: { title: title ?? `${schema} schema`, description, version: '1.0' },
    ...(url !== undefined && serverOf(new URL(url))),
    consumes: [...MEDIA, 'text/csv'],
    produces: [...MEDIA, 'text/csv'],
    paths: withinLimit([INTROSPECTION, ...tables.map(tablePath), ...callables.map(callPath)]),
    definitions: Object.fromEntries(
      tables.map(({ name, comment, columns }) => {
        const properties = withinLimit(columns.map((column) => [column.name, propertyOf(column)]))
        const required = columns.filter(({ nullable }) => !nullable).map((column) => column.name)
        // The format does not allow an empty list of required properties.
        const requirement = required.length > 0 && { required }
        return [name, { ...(comment && { description: comment }), ...requirement, type: 'object', properties }]
      }),
    ),
    parameters: { ...COMMON_PARAMETERS, ...withinLimit(tables.flatMap(tableParameters)) },
    externalDocs: {
      description: 'PostgREST Documentation',
      url: 'https://docs.postgrest.org/en/stable/references/api.html',
    },
  }
}

const serverOf = ({ host, pathname, protocol }: URL) => ({
  host,
  basePath: pathname,
  schemes: [protocol.slice(0, -1)],
})

const INTROSPECTION: Entry = [
  '/',
  {
    get: {
      tags: ['Introspection'],
      summary: 'OpenAPI description (this document)',
      produces: ['application/openapi+json', 'application/json'],
      responses: { 200: { description: 'OK' } },
    },
  },
]

/** Splits a comment into its first line, which lists show, and the rest. */
function heading(comment: string | null): { title?: string; description?: string } {
  if (!comment) return {}
  const [title = '', ...rest] = comment.split('\n')
  const description = rest.join('\n').replace(/^\n+/, '')
  return { title, ...(description && { description }) }
}

function summaryOf(comment: string | null) {
  const { title, ...more } = heading(comment)
  return { ...(title !== undefined && { summary: title }), ...more }
}

/** A JSON pointer in a URL fragment. */
const refTo = (group: 'definitions' | 'parameters', name: string) => ({
  $ref: `#/${group}/${encodeURIComponent(name.replaceAll('~', '~0').replaceAll('/', '~1'))}`,
})

function tablePath({ name, comment, writable, columns }: Table): Entry {
  const shared = { tags: [name], ...summaryOf(comment) }
  const filters = columns.map((column) => `rowFilter.${name}.${column.name}`)
  const refs = (names: readonly string[]) => names.map((one) => refTo('parameters', one))
  const rows = { description: 'OK', schema: { type: 'array', items: refTo('definitions', name) } }
  const read = {
    get: {
      ...shared,
      parameters: refs([...filters, 'select', 'order', 'range', 'rangeUnit', 'offset', 'limit', 'preferCount']),
      responses: { 200: rows, 206: { description: 'Partial Content' } },
    },
  }
  if (!writable) return [`/${name}`, read]
  const done = { 204: { description: 'No Content' } }
  return [
    `/${name}`,
    {
      ...read,
      post: {
        ...shared,
        parameters: refs([`body.${name}`, 'select', 'preferPost']),
        responses: { 201: { description: 'Created' } },
      },
      delete: { ...shared, parameters: refs([...filters, 'preferReturn']), responses: done },
      patch: { ...shared, parameters: refs([...filters, `body.${name}`, 'preferReturn']), responses: done },
    },
  ]
}

function callPath({ name, comment, isVolatile, inputs, takesBody }: Callable): Entry {
  const shared = {
    tags: [`(rpc) ${name}`],
    ...summaryOf(comment),
    produces: MEDIA,
    responses: { 200: { description: 'OK' } },
  }
  const required = inputs.filter(({ hasDefault }) => !hasDefault).map((input) => input.name)
  const args = {
    ...(comment && { description: comment }),
    ...(required.length > 0 && { required }),
    type: 'object',
    properties: Object.fromEntries(inputs.map((input) => [input.name, typeProperties(input.format)])),
  }
  const [first] = inputs
  const body = {
    name: 'args',
    in: 'body',
    required: true,
    schema: takesBody && first ? typeProperties(first.format) : args,
  }
  const post = { ...shared, parameters: [body] }
  // GET is for functions that change nothing and whose arguments have names for the query string.
  if (isVolatile || takesBody) return [`/rpc/${name}`, { post }]
  const parameters = inputs.map((input) => ({
    name: input.name,
    in: 'query',
    required: !input.hasDefault,
    ...{ type: 'string', ...typeProperties(input.format) },
    ...(input.mode === 'v' && { collectionFormat: 'multi' }),
  }))
  return [`/rpc/${name}`, { get: { ...shared, parameters }, post }]
}

function tableParameters({ name, columns }: Table): Entry[] {
  const body = { name, description: name, required: false, in: 'body', schema: refTo('definitions', name) }
  const filters = columns.map(({ name: column, comment }): Entry => {
    const commentProperties = comment ? { description: comment } : {}
    return [
      `rowFilter.${name}.${column}`,
      { name: column, ...commentProperties, required: false, in: 'query', type: 'string' },
    ]
  })
  return [[`body.${name}`, body], ...filters]
}

const preference = (values: readonly string[]) => ({
  name: 'Prefer',
  description: 'Preference',
  required: false,
  enum: values,
  in: 'header',
  type: 'string',
})
const parameter = (place: 'query' | 'header', name: string, description: string) => ({
  name,
  description,
  required: false,
  in: place,
  type: 'string',
})
const PAGING = 'Limiting and Pagination'
const RETURNED = ['return=representation', 'return=minimal', 'return=none']

const COMMON_PARAMETERS = {
  preferReturn: preference(RETURNED),
  preferCount: preference(['count=none']),
  preferPost: preference([...RETURNED, 'resolution=ignore-duplicates', 'resolution=merge-duplicates']),
  select: parameter('query', 'select', 'Filtering Columns'),
  on_conflict: parameter('query', 'on_conflict', 'On Conflict'),
  order: parameter('query', 'order', 'Ordering'),
  range: parameter('header', 'Range', PAGING),
  rangeUnit: { ...parameter('header', 'Range-Unit', PAGING), default: 'items' },
  offset: parameter('query', 'offset', PAGING),
  limit: parameter('query', 'limit', PAGING),
}

function propertyOf(column: TableColumn): object {
  const { comment, format, inKey, refersTo, values, lengthMax } = column
  const notes = [...(inKey ? ['This is a Primary Key.<pk/>'] : []), ...(refersTo ? [foreignKey(refersTo)] : [])]
  const note = notes.length > 0 ? ['Note:', ...notes].join('\n') : undefined
  const description = [comment, note].filter((part) => part != null).join('\n\n')
  const value = defaultOf(column)
  return {
    ...(value !== undefined && { default: value }),
    ...(description && { description }),
    ...(values && { enum: values }),
    ...typeProperties(format),
    ...(lengthMax !== null && { maxLength: lengthMax }),
  }
}

/** Clients search the text for the tags. */
const foreignKey = ({ table, column }: { table: string; column: string }) =>
  `This is a Foreign Key to \`${table}.${column}\`.<fk table='${table}' column='${column}'/>`

const TYPES: Readonly<Record<string, string>> = {
  boolean: 'boolean',
  smallint: 'integer',
  integer: 'integer',
  bigint: 'integer',
  numeric: 'number',
  real: 'number',
  'double precision': 'number',
}

interface TypeProperties {
  format: string
  type?: string
  items?: object
}

/** JSON columns have no type, because they may have any. */
function typeProperties(format: string): TypeProperties {
  if (format.endsWith('[]')) {
    const { type } = typeProperties(format.slice(0, -2))
    return { format, type: 'array', items: type ? { type } : {} }
  }
  return format === 'json' || format === 'jsonb' ? { format } : { format, type: TYPES[format] ?? 'string' }
}

/** Returns the value of a literal default. Other defaults are returned as expressions for texts and omitted for all other types. */
function defaultOf({ format, default: expression }: TableColumn): unknown {
  const { type } = typeProperties(format)
  if (expression === null || type === 'array') return undefined
  const [, quoted] = /^'((?:[^']|'')*)'(?:::[^']+)?$/.exec(expression) ?? []
  const text = quoted?.replaceAll("''", "'") ?? expression
  if (type === 'string') return text
  try {
    const value: unknown = JSON.parse(text)
    // A number beyond the safe range would lose digits.
    return typeof value === 'number' && Math.abs(value) > Number.MAX_SAFE_INTEGER ? undefined : value
  } catch {
    return undefined
  }
}
