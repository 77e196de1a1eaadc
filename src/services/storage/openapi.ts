import { createComponents, type Json, type Publication } from '../../platform/http/openapi.ts'
import { isTusPath, tusStatusOf } from './resumable/tus-protocol.ts'
import { ACCESS, COMMON_ERRORS, errorsOf, isJsonText, isResponses, isStreamed, type Route } from './route.ts'
import { storageRoutes } from './routes.ts'
import { StorageError, type StorageErrorCode } from './storage-error.ts'

/** Builds the OpenAPI document of the storage API from the route table that the router mounts. */
export function storageOpenapi({ release, baseUrl }: Publication): object {
  const { schemaOf, parameters, json, shareResponse, toJson } = createComponents({ Error: ERROR })
  const paths: Record<string, Json> = {}
  for (const route of storageRoutes) {
    paths[route.path] = { ...paths[route.path], [route.method.toLowerCase()]: operation(route) }
  }
  return {
    openapi: '3.1.0',
    info: { title: 'Pilothouse Storage API', version: release },
    servers: [{ url: `${baseUrl}/p/{ref}/storage/v1`, variables: { ref: REF } }],
    tags: Array.from(new Set(storageRoutes.map(tagOf)), (name) => ({ name })),
    paths,
    components: { securitySchemes: SECURITY_SCHEMES, ...toJson() },
  }

  function operation(route: Route): Json {
    const { id, summary, description, deprecated, access, query, headers, operation: name } = route
    const policies = access === 'public' ? '' : `\`storage.operation()\` is \`${name}\` in policies.`
    return {
      operationId: id,
      summary,
      description: [description, ACCESS[access], policies].filter(Boolean).join('\n\n'),
      ...(deprecated && { deprecated }),
      tags: [tagOf(route)],
      security: securityOf(route),
      parameters: [...pathParameters(route), ...parameters('query', query), ...parameters('header', headers)],
      ...requestBody(route),
      responses: { ...success(route), ...failures(route) },
    }
  }

  function requestBody({ body }: Route): Json {
    if (!body) return {}
    const content = isStreamed(body) ? contentOf(body.streams, 'input') : json(body, 'input')
    return { requestBody: { required: !isStreamed(body), content } }
  }

  function success({ returns }: Route): Json {
    if (!isResponses(returns)) {
      return { 200: { description: 'Success', content: json(isJsonText(returns) ? returns.json : returns, 'output') } }
    }
    return Object.fromEntries(
      Object.entries(returns.replies).map(([status, { description, content }]) => [
        status,
        { description, ...(content && { content: contentOf(content, 'output') }) },
      ]),
    )
  }

  function contentOf(schemas: Readonly<Record<string, Parameters<typeof schemaOf>[0]>>, io: 'input' | 'output'): Json {
    return Object.fromEntries(Object.entries(schemas).map(([type, schema]) => [type, { schema: schemaOf(schema, io) }]))
  }

  function failures(route: Route): Json {
    const byStatus = Map.groupBy(errorsOf(route), (code) => statusOf(route, code))
    return Object.fromEntries(
      Array.from(byStatus, ([status, codes]) => {
        return [status, shareResponse(responseName(route, status, codes), failure(route, codes))]
      }),
    )
  }
}

const tagOf = ({ area = 'other' }: Route): string => area

const statusOf = ({ method, path }: Route, code: StorageErrorCode): number => {
  const error = new StorageError(code)
  return isTusPath(path) ? tusStatusOf(method, error) : error.status
}

/** Name of an error reply: its status, and its codes without those of every route. */
function responseName({ path }: Route, status: number, codes: readonly StorageErrorCode[]): string {
  const own = codes.filter((code) => !COMMON_ERRORS.includes(code))
  return [isTusPath(path) ? 'tus' : [], status, own.length > 0 ? own : codes].flat(2).join('-')
}

function failure({ path }: Route, codes: readonly StorageErrorCode[]): Json {
  const content = isTusPath(path)
    ? { 'text/plain': { schema: { type: 'string' } } }
    : { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } }
  const bodies = codes.map((code) => new StorageError(code).body)
  return {
    description: bodies.map(({ code, statusCode, message }) => `\`${code}\` (${statusCode}): ${message}`).join('\n\n'),
    content,
    'x-error-codes': Array.from(new Set(bodies.map(({ code }) => code))),
  }
}

const PATH_PARAMETERS: Record<string, string> = {
  bucketId: 'The id of the bucket',
  bucketName: 'The id of the bucket',
  wildcard: 'The name of the object: all of the rest of the path, with its slashes',
  id: 'The id of the upload, the last part of its URL',
}

const pathParameters = ({ path }: Route): Json[] =>
  Array.from(path.matchAll(/\{(\w+)\}/g), ([, name = '']) => ({
    name,
    in: 'path',
    required: true,
    description: PATH_PARAMETERS[name],
    schema: { type: 'string' },
  }))

const TOKENS = [{ bearer: [] }, { apiKey: [] }, { query: [] }]

function securityOf({ access }: Route): Json[] {
  if (access === 'caller' || access === 'service role') return TOKENS
  return access === 'optional caller' ? [{}, ...TOKENS] : []
}

const REF = { default: 'abcdefghijklmnopqrst', description: 'The ref of the project' }

const SECURITY_SCHEMES = {
  bearer: { type: 'http', scheme: 'bearer', description: 'An API key of the project, or a JWT that it trusts' },
  apiKey: { type: 'apiKey', in: 'header', name: 'apikey', description: 'The same, for requests without Authorization' },
  query: { type: 'apiKey', in: 'query', name: 'authorization', description: 'The same, in the query' },
}

const string = { type: 'string' }
const ERROR = {
  type: 'object',
  required: ['statusCode', 'error', 'message', 'code'],
  properties: {
    statusCode: { type: 'string', description: 'Tells errors apart that have the HTTP status 400' },
    error: string,
    message: string,
    code: string,
  },
}
