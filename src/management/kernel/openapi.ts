import * as z from 'zod'
import { type ApiVersion, type ErrorCode, isOAuthPath, messageOf, statusOf } from '../../platform/http/error.ts'
import { isBufferedBody } from './body.ts'
import { errorsOf, isAnswer, isOptional, isSchema, isStream, isText, type Route, total } from './route.ts'

/** Drops parameters such as the charset: clients compare media types without them. */
const mediaType = (contentType: string): string => contentType.replace(/;.*/, '')

type Io = 'input' | 'output'
type Json = Record<string, unknown>

interface Publication {
  /** The version of this software. */
  release: string
  baseUrl: string
}

/** Builds the OpenAPI document of one version from the route table that the router mounts. */
export function openapi(routes: readonly Route[], version: ApiVersion, { release, baseUrl }: Publication) {
  const published = routes.filter(({ path }) => path.startsWith(`/${version}/`))
  const schemas = new Map<string, unknown>(Object.entries(ERROR_SCHEMAS[version]))
  /** Error replies by name; many operations share one. */
  const responses = new Map<string, Json>()
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
    components: {
      securitySchemes: { bearer: SECURITY },
      headers: HEADERS,
      responses: Object.fromEntries(responses),
      schemas: Object.fromEntries(schemas),
    },
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
        const reply = failure(route, status, group, version)
        const known = responses.get(name)
        if (known && JSON.stringify(known) !== JSON.stringify(reply))
          throw new Error(`two error replies are named ${name}`)
        responses.set(name, reply)
        return [status, { $ref: `#/components/responses/${name}` }]
      }),
    )
  }

  function parameters(place: 'path' | 'query', object: z.ZodObject | undefined): Json[] {
    const shape = (object?.shape ?? {}) as Record<string, z.ZodType>
    const { required = [] } = z.toJSONSchema(z.object(shape), { io: 'input', unrepresentable: 'any' })
    return Object.entries(shape).map(([name, schema]) => {
      const { description, deprecated } = schema.meta() ?? {}
      return {
        name,
        in: place,
        required: required.includes(name),
        ...(description && { description }),
        ...(deprecated && { deprecated }),
        schema: schemaOf(schema, 'input'),
      }
    })
  }

  function json(schema: z.ZodType, io: Io): Json {
    return { 'application/json': { schema: schemaOf(schema, io) } }
  }

  /** Converts a schema and moves its named schemas, which zod puts under $defs, to the components. */
  function schemaOf(schema: z.ZodType, io: Io): unknown {
    // JSON Schema cannot express z.undefined(), by which a request refuses a field; a reply must be expressible in full.
    const unrepresentable = io === 'input' ? 'any' : 'throw'
    const generated = z.toJSONSchema(schema, { io, unrepresentable, override: (context) => tidy(context, io) })
    const text = JSON.stringify(generated).replaceAll('#/$defs/', '#/components/schemas/')
    const { $schema: _, $defs = {}, ...inline } = JSON.parse(text.replaceAll('__schema0', JSON_VALUE), leaveOutRefused)
    for (const [name, definition] of Object.entries($defs)) {
      const known = schemas.get(name)
      if (known && JSON.stringify(known) !== JSON.stringify(definition)) {
        throw new Error(`two schemas are named ${name}, or requests and replies see it differently`)
      }
      schemas.set(name, definition)
    }
    return inline
  }
}

/** Name of the schema of z.json(), the only recursive schema without a name. */
const JSON_VALUE = 'JsonValue'

const REFUSED = { $comment: 'refused' }

/** Leaves fields that every request must omit out of the document. */
const leaveOutRefused = (_name: string, value: { not?: { $comment?: unknown } } | null) =>
  value?.not?.$comment === REFUSED.$comment ? undefined : value

type Override = Parameters<NonNullable<NonNullable<Parameters<typeof z.toJSONSchema>[1]>['override']>>[0]

function tidy({ zodSchema, jsonSchema }: Override, io: Io): void {
  if (zodSchema._zod.def.type === 'undefined') jsonSchema.not = REFUSED
  const flagged = patternsOf(zodSchema).find(({ flags }) => flags.includes('i'))
  if (flagged)
    throw new Error(`JSON Schema patterns have no flags: ${flagged} must match both cases without the flag i`)
  // The format is enough: the pattern has 300 characters.
  if (jsonSchema.format === 'date-time') delete jsonSchema.pattern
  if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum
  if (jsonSchema.minimum === Number.MIN_SAFE_INTEGER) delete jsonSchema.minimum
  // Replies may gain fields later, so the document must not forbid them.
  if (io === 'output' && jsonSchema.additionalProperties === false) delete jsonSchema.additionalProperties
}

const patternsOf = ({ _zod: { def } }: Override['zodSchema']): RegExp[] =>
  (def.checks ?? []).flatMap(({ _zod: { def } }) =>
    'pattern' in def && def.pattern instanceof RegExp ? [def.pattern] : [],
  )

const tagOf = ({ area = 'other' }: Route): string => area

const isScope = ({ scope }: Route): boolean => scope !== 'public' && scope !== 'any caller'

function securityOf(route: Route): Json[] {
  if (route.scope === 'public') return []
  return [{ bearer: isScope(route) ? [route.scope] : [] }]
}

/** Describes the access that a caller needs, as tools rarely show the scopes of a bearer scheme. */
function accessText(route: Route): string {
  const { scope, permission = scope, params, limit = 'standard' } = route
  const resource =
    params.shape.ref || params.shape.branch_id_or_ref ? 'project' : params.shape.slug ? 'organization' : undefined
  const token = isScope(route) ? `Requires a token with the scope \`${scope}\`` : 'Requires a valid token of any scope'
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
