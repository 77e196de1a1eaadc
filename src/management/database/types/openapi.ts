import type { Catalogue } from './catalogue.ts'
import type { Details } from './catalogue-details.ts'
import { type Callable, callablesOf } from './routines.ts'
import { type Table, type TableColumn, tablesOf } from './tables.ts'

const DOCUMENT_LENGTH_MAX = 16 * 1024 * 1024

export class DocumentTooLarge extends Error {
  override readonly name = 'DocumentTooLarge'
  override readonly message = `at most ${DOCUMENT_LENGTH_MAX} characters`
}

type Entry = readonly [string, object]

const MEDIA = [
  'application/json',
  'application/vnd.pgrst.object+json;nulls=stripped',
  'application/vnd.pgrst.object+json',
]

/**
 * Swagger 2.0, in the form in which PostgREST describes a schema. It names no host, as tables are not served from here, and is
 * measured while it is made: a long list of values may stand in every column.
 */
export function openApiOf(schema: string, catalogue: Catalogue, details: Details) {
  let length = 0
  const measured = (entries: readonly Entry[]): object => {
    for (const entry of entries) {
      length += JSON.stringify(entry).length
      if (length > DOCUMENT_LENGTH_MAX) throw new DocumentTooLarge()
    }
    return Object.fromEntries(entries)
  }
  const tables = tablesOf(catalogue, details)
  const callables = callablesOf(catalogue, details)
  const { title, description = '' } = heading(details.comment)
  return {
    swagger: '2.0',
    info: { title: title ?? `${schema} schema`, description, version: '1.0' },
    consumes: [...MEDIA, 'text/csv'],
    produces: [...MEDIA, 'text/csv'],
    paths: measured([INTROSPECTION, ...tables.map(tablePath), ...callables.map(callPath)]),
    definitions: Object.fromEntries(
      tables.map(({ name, comment, columns }) => {
        const properties = measured(columns.map((column) => [column.name, propertyOf(column)]))
        const required = columns.filter(({ nullable }) => !nullable).map((column) => column.name)
        // The form knows no empty list of what is required.
        const needs = required.length > 0 && { required }
        return [name, { ...(comment && { description: comment }), ...needs, type: 'object', properties }]
      }),
    ),
    parameters: { ...COMMON_PARAMETERS, ...measured(tables.flatMap(tableParameters)) },
    externalDocs: {
      description: 'PostgREST Documentation',
      url: 'https://docs.postgrest.org/en/stable/references/api.html',
    },
  }
}

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

/** The first line of a comment is what lists show. */
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

/** A pointer in a fragment. */
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
    properties: Object.fromEntries(inputs.map((input) => [input.name, typed(input.format)])),
  }
  const [first] = inputs
  const body = { name: 'args', in: 'body', required: true, schema: takesBody && first ? typed(first.format) : args }
  const post = { ...shared, parameters: [body] }
  // Only what changes nothing can be asked for by GET, and only names can stand in a query.
  if (isVolatile || takesBody) return [`/rpc/${name}`, { post }]
  const parameters = inputs.map((input) => ({
    name: input.name,
    in: 'query',
    required: !input.hasDefault,
    ...{ type: 'string', ...typed(input.format) },
    ...(input.mode === 'v' && { collectionFormat: 'multi' }),
  }))
  return [`/rpc/${name}`, { get: { ...shared, parameters }, post }]
}

function tableParameters({ name, columns }: Table): Entry[] {
  const body = { name, description: name, required: false, in: 'body', schema: refTo('definitions', name) }
  const filters = columns.map(({ name: column, comment }): Entry => {
    const described = comment ? { description: comment } : {}
    return [`rowFilter.${name}.${column}`, { name: column, ...described, required: false, in: 'query', type: 'string' }]
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
    ...typed(format),
    ...(lengthMax !== null && { maxLength: lengthMax }),
  }
}

/** Clients look for the tags. */
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

interface Typed {
  format: string
  type?: string
  items?: object
}

/** What is JSON may be of any type. */
function typed(format: string): Typed {
  if (format.endsWith('[]')) {
    const { type } = typed(format.slice(0, -2))
    return { format, type: 'array', items: type ? { type } : {} }
  }
  return format === 'json' || format === 'jsonb' ? { format } : { format, type: TYPES[format] ?? 'string' }
}

/** A literal as the value that it stands for; what else makes a text as the expression, and nothing for all other types. */
function defaultOf({ format, default: expression }: TableColumn): unknown {
  const { type } = typed(format)
  if (expression === null || type === 'array') return undefined
  const [, quoted] = /^'((?:[^']|'')*)'(?:::[^']+)?$/.exec(expression) ?? []
  const text = quoted?.replaceAll("''", "'") ?? expression
  if (type === 'string') return text
  try {
    const value: unknown = JSON.parse(text)
    // Beyond what a number holds it would say something else.
    return typeof value === 'number' && Math.abs(value) > Number.MAX_SAFE_INTEGER ? undefined : value
  } catch {
    return undefined
  }
}
