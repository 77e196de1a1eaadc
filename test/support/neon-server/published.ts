import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { Validator } from '@seriousme/openapi-schema-validator'
import * as z from 'zod'

interface Schema {
  type?: string
  properties?: Record<string, Schema>
  required?: string[]
  additionalProperties?: unknown
  allOf?: Schema[]
  items?: Schema
}
interface Parameter {
  name: string
  in: string
  required?: boolean
  schema: Schema
}
interface Content {
  content?: Record<string, { schema: Schema }>
}
interface Operation {
  operationId: string
  parameters?: Parameter[]
  requestBody?: Content & { required?: boolean }
  responses: Record<string, Content>
}
type PathItem = Record<string, Operation> & { parameters?: Parameter[] }

const SPECIFICATION = 'public-v2-for-users.gen.yaml'

export interface Published {
  /** Returns undefined if the specification has no such operation. */
  find(method: string, path: string): PublishedOperation | undefined
}

interface PublishedOperation {
  id: string
  /** The ids in the order of the path. */
  ids: string[]
  /** Returns how a request, or a reply of ours, differs from the specification; undefined if it does not. */
  requestProblem(query: URLSearchParams, body: unknown): string | undefined
  replyProblem(status: number, body: unknown): string | undefined
}

/** Reads Neon's own description of its API from its client package. */
export async function readPublished(): Promise<Published> {
  const file = join(
    dirname(createRequire(import.meta.url).resolve('@neondatabase/api-client/package.json')),
    SPECIFICATION,
  )
  const validator = new Validator()
  const { valid } = await validator.validate(file)
  if (!valid) throw new Error(`${SPECIFICATION} is not valid`)
  const paths = Object.entries(validator.resolveRefs().paths as Record<string, PathItem>)
  return {
    find(method, path) {
      for (const [template, item] of paths) {
        const ids = new RegExp(`^${template.replace(/\{\w+\}/g, '([^/]+)')}$`).exec(path)?.slice(1)
        const operation = ids && item[method.toLowerCase()]
        if (operation) return described(operation, [...(item.parameters ?? []), ...(operation.parameters ?? [])], ids)
      }
      return undefined
    },
  }
}

function described(operation: Operation, parameters: readonly Parameter[], ids: string[]): PublishedOperation {
  return {
    id: operation.operationId,
    ids,
    requestProblem(query, body) {
      const wrongIds = parameters
        .filter((parameter) => parameter.in === 'path')
        .map((parameter, n) => schemaProblem(parameter.schema, ids[n], parameter.name))
      return [...wrongIds, queryProblem(parameters, query), bodyProblem(operation, body)].find(Boolean)
    },
    replyProblem(status, body) {
      const { content } = operation.responses[status] ?? operation.responses.default ?? {}
      const schema = content?.['application/json']?.schema
      if (!schema) return body === undefined ? undefined : `${status} has no body`
      return schemaProblem(schema, body, `the reply ${status}`)
    },
  }
}

function queryProblem(parameters: readonly Parameter[], query: URLSearchParams): string | undefined {
  const known = parameters.filter((parameter) => parameter.in === 'query')
  for (const name of query.keys()) if (!known.some((each) => each.name === name)) return `no parameter ${name}`
  for (const { name, required, schema } of known) {
    const text = query.get(name)
    if (text === null && required) return `the parameter ${name} is missing`
    const problem =
      text === null ? undefined : schemaProblem(schema, schema.type === 'string' ? text : JSON.parse(text), name)
    if (problem) return problem
  }
  return undefined
}

function bodyProblem({ requestBody }: Operation, body: unknown): string | undefined {
  const schema = requestBody?.content?.['application/json']?.schema
  if (!schema) return body === undefined ? undefined : 'this takes no body'
  if (body === undefined) return requestBody?.required ? 'the body is missing' : undefined
  return schemaProblem(closed(schema), body, 'body')
}

function schemaProblem(schema: Schema, value: unknown, name: string): string | undefined {
  const { error } = z.fromJSONSchema(schema as never, { defaultTarget: 'openapi-3.0' }).safeParse(value)
  return error && `${name}: ${z.prettifyError(error)}`
}

/** Forbids unknown fields, which would be our mistake, although the published schemas allow them. */
function closed(schema: Schema): Schema {
  if (schema.allOf) return closed(schema.allOf.reduce(merged))
  if (schema.items) return { ...schema, items: closed(schema.items) }
  if (!schema.properties) return schema
  const properties = Object.fromEntries(Object.entries(schema.properties).map(([name, each]) => [name, closed(each)]))
  return { ...schema, properties, additionalProperties: false }
}

const merged = (one: Schema, other: Schema): Schema => ({
  type: 'object',
  properties: { ...one.properties, ...other.properties },
  required: [...(one.required ?? []), ...(other.required ?? [])],
})
