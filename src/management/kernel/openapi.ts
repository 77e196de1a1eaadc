import {
  type ApiVersion,
  type ErrorCode,
  failureMessage,
  isOAuthPath,
  messageOf,
  statusOf,
} from '../../platform/http/error.ts'
import { createComponents, type Json, type Publication } from '../../platform/http/openapi.ts'
import { isBufferedBody } from './body.ts'
import { errorsOf, isAnswer, isOptional, isSchema, isStream, isText, type Route, scopeOf, total } from './route.ts'

/** Drops parameters such as the charset: clients compare media types without them. */
const mediaType = (contentType: string): string => contentType.replace(/;.*/, '')

/** Builds the OpenAPI document of one version from the route table that the router mounts. */
export function openapi(routes: readonly Route[], version: ApiVersion, { release, baseUrl }: Publication) {
  const published = routes.filter(({ path }) => path.startsWith(`/${version}/`))
  const { schemaOf, parameters, json, shareResponse, toJson } = createComponents(ERROR_SCHEMAS[version])
  const paths: Record<string, Json> = {}
  for (const route of published) {
    paths[route.path] = { ...paths[route.path], [route.method.toLowerCase()]: operation(route) }
  }
  return {
    openapi: '3.1.0',
    info: { title: 'Pilothouse Management API', version: release },
    servers: [{ url: baseUrl }],
    tags: Array.from(new Set(published.map(tagOf)), (name) => ({ name })),
    paths,
    components: { securitySchemes: { bearer: SECURITY }, headers: HEADERS, ...toJson() },
  }

  function operation(route: Route): Json {
    return {
      operationId: route.id,
      summary: route.stability ? `[${route.stability}] ${route.summary}` : route.summary,
      description: [route.description, accessText(route)].filter(Boolean).join('\n\n'),
      ...(route.deprecated && { deprecated: true }),
      tags: [tagOf(route)],
      security: securityOf(route),
      parameters: [
        ...parameters('path', route.params),
        ...parameters('query', route.query),
        ...(route.idempotent ? [IDEMPOTENCY_KEY] : []),
      ],
      ...requestBody(route),
      responses: { ...success(route), ...failures(route) },
    }
  }

  function requestBody({ body }: Route): Json {
    if (!body) return {}
    if (!isBufferedBody(body)) return { requestBody: { required: !isOptional(body), content: json(body, 'input') } }
    const content = Object.entries(body.forms).map(([type, { schema }]) => [
      type,
      { schema: schemaOf(schema, 'input') },
    ])
    return { requestBody: { required: !body.optional, content: Object.fromEntries(content) } }
  }

  function success({ returns, status = 200 }: Route): Json {
    const reply = { description: 'Success', headers: LIMIT_HEADERS }
    if (isText(returns)) {
      const schema = schemaOf(returns.schema, 'output')
      return { [status]: { ...reply, content: { [mediaType(returns.contentType)]: { schema } } } }
    }
    if (isStream(returns)) {
      const schema = schemaOf(returns.schema, 'output')
      return { [status]: { ...reply, content: { [returns.streams]: { schema } } } }
    }
    if (isAnswer(returns)) {
      const content = { [mediaType(returns.answers)]: { schema: string } }
      return Object.fromEntries(
        Object.entries(returns.replies).map(([status, description]) => [
          status,
          status.startsWith('3')
            ? { description, headers: REDIRECT_HEADERS }
            : { description, headers: LIMIT_HEADERS, content },
        ]),
      )
    }
    if (returns === total) {
      const headers = { ...LIMIT_HEADERS, 'X-Total-Count': { schema: { type: 'integer', minimum: 0 } } }
      return { [status]: { ...reply, headers } }
    }
    return { [status]: isSchema(returns) ? { ...reply, content: json(returns, 'output') } : reply }
  }

  function failures(route: Route): Json {
    const byStatus = Map.groupBy(errorsOf(route), statusOf)
    return Object.fromEntries(
      Array.from(byStatus, ([status, group]) => {
        const name = responseName(route, status, group)
        const shared = shareResponse(name, failure(route, status, group, version))
        const isFault = version === 'v1' && status === 500
        return [status, isFault ? { ...shared, description: failureMessage(route.summary) } : shared]
      }),
    )
  }
}

const tagOf = ({ area = 'other' }: Route): string => area

function securityOf(route: Route): Json[] {
  if (route.scope === 'public') return []
  const scope = scopeOf(route)
  return [{ bearer: scope ? [scope] : [] }]
}

/** Describes the access that a caller needs, as tools rarely show the scopes of a bearer scheme. */
function accessText(route: Route): string {
  const { scope, permission = scope, params, limit = 'standard' } = route
  const needed = scopeOf(route)
  const resource =
    params.shape.ref || params.shape.branch_id_or_ref ? 'project' : params.shape.slug ? 'organization' : undefined
  const token = needed ? `Requires a token with the scope \`${needed}\`` : 'Requires a valid token of any scope'
  const role = resource && permission !== 'any caller' ? `a role in the ${resource} that allows \`${permission}\`` : ''
  const access = scope === 'public' ? 'Requires no token' : [token, role].filter(Boolean).join(' and ')
  return `${access}.${limit === 'standard' ? '' : ` Also counts against the limit \`${limit}\`.`}`
}

/** Name of an error reply: its status and its codes without their category, such as `404-project-signing_key`. */
function responseName({ path }: Route, status: number, codes: readonly ErrorCode[]): string {
  const names = codes.map((code) => code.replace(/^[a-z_]+\./, ''))
  return [isOAuthPath(path) ? 'oauth' : [], status, names].flat(2).join('-')
}

function failure({ path }: Route, status: number, codes: readonly ErrorCode[], version: ApiVersion): Json {
  const ofVersion = version === 'v1' && codes.some(isSqlError) ? 'SqlError' : 'Error'
  const schema = isOAuthPath(path) ? 'OAuthError' : ofVersion
  return {
    description: codes.map((code) => `\`${code}\`: ${messageOf(code, version)}`).join('\n\n'),
    headers: status === 429 ? { ...LIMIT_HEADERS, 'Retry-After': header('Retry-After') } : LIMIT_HEADERS,
    content: { 'application/json': { schema: { $ref: `#/components/schemas/${schema}` } } },
    'x-error-codes': codes,
  }
}

const isSqlError = (code: ErrorCode): boolean => code.startsWith('bad_request.sql')

const SECURITY = {
  type: 'http',
  scheme: 'bearer',
  description: 'A personal access token (`sbp_…`) or an OAuth access token (`sbp_oauth_…`)',
}

const HEADERS = {
  'X-RateLimit-Limit': { description: 'Requests allowed in the window', schema: { type: 'integer' } },
  'X-RateLimit-Remaining': { description: 'Requests left in the window', schema: { type: 'integer' } },
  'X-RateLimit-Reset': { description: 'Milliseconds until the window ends', schema: { type: 'integer' } },
  'X-Request-Id': { description: 'Identifies the request in the log', schema: { type: 'string', format: 'uuid' } },
  'Retry-After': { description: 'Seconds until the window ends', schema: { type: 'integer' } },
}

const IDEMPOTENCY_KEY = {
  name: 'Idempotency-Key',
  in: 'header',
  required: false,
  description: 'A request that is repeated with the same key takes effect once',
  schema: { type: 'string', minLength: 1, maxLength: 255 },
}

const header = (name: keyof typeof HEADERS) => ({ $ref: `#/components/headers/${name}` })

const LIMIT_HEADERS = {
  'X-RateLimit-Limit': header('X-RateLimit-Limit'),
  'X-RateLimit-Remaining': header('X-RateLimit-Remaining'),
  'X-RateLimit-Reset': header('X-RateLimit-Reset'),
  'X-Request-Id': header('X-Request-Id'),
}

const string = { type: 'string' }
const REDIRECT_HEADERS = { ...LIMIT_HEADERS, Location: { schema: string } }
const map = (values: unknown) => ({ type: 'object', additionalProperties: values })

const Link = {
  type: 'object',
  required: ['href'],
  properties: { href: string, rel: string, title: string, type: string, describedby: string, meta: map({}) },
}

/** Schemas of the error bodies that `renderError` writes. */
const ERROR_SCHEMAS: Record<ApiVersion, Json> = {
  v1: {
    Error: { type: 'object', required: ['message'], properties: { message: string } },
    OAuthError: {
      type: 'object',
      description: 'An error of RFC 6749, section 5.2, with the message that every error has',
      required: ['error', 'message'],
      properties: { error: string, error_description: string, message: string },
    },
    SqlError: {
      type: 'object',
      description: 'The message, with the fields of the Postgres error if there is one',
      required: ['message'],
      properties: {
        message: string,
        code: { type: 'string', description: 'SQLSTATE' },
        position: { type: 'integer', description: 'Position in the query in characters, starting at 1' },
        hint: string,
        detail: string,
        severity: string,
        where: string,
      },
      additionalProperties: true,
    },
  },
  v2: {
    Error: {
      type: 'object',
      required: ['error'],
      properties: { error: { $ref: '#/components/schemas/ErrorObject' } },
    },
    ErrorObject: {
      type: 'object',
      required: ['code', 'message'],
      properties: {
        id: { type: 'string', description: 'The id of the request' },
        code: string,
        message: string,
        description: string,
        links: map(Link),
        meta: map({}),
        issues: { type: 'array', items: { $ref: '#/components/schemas/ErrorObject' } },
      },
    },
  },
}
