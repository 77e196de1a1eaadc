import * as z from 'zod'
import type { Ctx, SystemCtx } from '../../ctx.ts'
import { SCOPES, type Scope } from '../../model/scopes.ts'
import { BranchIdOrRef, Ref, Slug } from '../../platform/http/common-values.ts'
import { type ErrorCode, isOAuthPath } from '../../platform/http/error.ts'
import type { Limit } from '../../platform/rate-limit/quota.ts'
import type { Resources } from './app-env.ts'
import { type BufferedBody, bufferedBodyErrors, isBufferedBody, memoryErrors } from './body.ts'

/** `any caller`: a valid token without a scope, as the specification lists none. `public`: no token. */
export type Access = Scope | 'any caller' | 'public'
type Out<T> = T extends z.ZodType ? z.output<T> : undefined
type BodyOut<T> = T extends BufferedBody<infer Value> ? Value : Out<T>
type Names<Path extends string> = Path extends `${string}{${infer Name}}${infer Rest}` ? Name | Names<Rest> : never
/** Path parameters that a route declares; {ref}, {slug} and {branch_id_or_ref} mean the same everywhere. */
type Declared<Path extends string> = Exclude<Names<Path>, 'ref' | 'slug' | 'branch_id_or_ref'>
type Shape<Path extends string> = { [Name in Declared<Path>]: z.ZodType<string, string> }

/** A reply without a body. */
export const empty = Symbol('a reply without a body')
/** A reply without a body whose X-Total-Count header is the number that the handler returns. */
export const total = Symbol('a reply with X-Total-Count')
export const text = (contentType: string, schema: z.ZodType = z.unknown()) => ({ contentType, schema })
export type TextReply = ReturnType<typeof text>
/** A streamed reply; the handler returns the full content type. */
export const stream = (contentType: string, schema: z.ZodType) => ({ streams: contentType, schema })
export type StreamReply = ReturnType<typeof stream>
export interface Streamed {
  contentType: string
  body: ReadableStream<Uint8Array>
}

/** A page or a redirect. `replies` describes each status that the handler may return. */
export const answer = (contentType: string, replies: Readonly<Record<number, string>>) => ({
  answers: contentType,
  replies,
})
export type AnswerReply = ReturnType<typeof answer>
export interface Answer {
  status: 200 | 303 | 422
  headers: Record<string, string>
  body?: string
}

/** One row of the route table, from which the router, the OpenAPI document and the tests are derived. */
interface Spec<Path extends string, S extends Access, Q, B, R> {
  /** operationId in the published document. Renaming one breaks every generated client. */
  id: string
  summary: string
  description?: string
  /** Set if new clients should use another endpoint. */
  deprecated?: true
  /** Stability in the specification, published in front of the summary. */
  stability?: 'Alpha' | 'Beta' | 'Experimental'
  scope: S
  /** Permission that the caller's role must have; defaults to the scope. */
  permission?: Scope
  limit?: Limit
  /**
   * Returns the id of the application that authenticates itself, for the rate limit; undefined if it sends no secret. Unless
   * `mayGuess`, only secrets that have been verified before are accepted.
   */
  clientOf?(
    ctx: SystemCtx,
    request: Pick<Request<Path, S, Q, B>, 'body' | 'headers'>,
    mayGuess: boolean,
  ): Promise<string | undefined>
  params: Shape<Path>
  query?: Q
  body?: B
  bodySizeBytesMax?: number
  /** Counts a 404 of the handler as a guess, because the path contains a secret. */
  countsMisses?: true
  /** Passes the Idempotency-Key header to the handler. */
  idempotent?: true
  returns: R
  status?: 200 | 201 | 202 | 204
  /** Headers of every reply of the route, errors included. */
  headers?: Readonly<Record<string, string>>
  errors?: readonly ErrorCode[]
  handle(request: Request<Path, S, Q, B> & Resource<Path>): Promise<Reply<R>>
}

type Resource<Path extends string> = ('ref' extends Names<Path> ? Pick<Resources, 'project'> : unknown) &
  ('slug' extends Names<Path> ? Pick<Resources, 'organization'> : unknown) &
  ('branch_id_or_ref' extends Names<Path> ? Pick<Resources, 'branch'> : unknown)

interface Request<Path extends string, S extends Access, Q, B> {
  ctx: S extends 'public' ? SystemCtx : Ctx
  params: { [Name in Names<Path>]: string }
  query: Out<Q>
  body: BodyOut<B>
  idempotencyKey?: string
  /** The request headers. */
  headers: Headers
}

type Optional<Path extends string, T> = Declared<Path> extends never ? Omit<T, 'params'> : T
// biome-ignore lint/suspicious/noConfusingVoidType: a handler without a reply returns a promise of nothing
type BodylessReply<R> = R extends typeof total ? number : void
type SpecialReply<R> = R extends TextReply
  ? string | ReadableStream<Uint8Array>
  : R extends StreamReply
    ? Streamed
    : R extends AnswerReply
      ? Answer
      : BodylessReply<R>
type Reply<R> = R extends z.ZodType ? z.input<R> : SpecialReply<R>
type Method = 'HEAD' | 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
type ObjectSchema = z.ZodObject | undefined
type Schema = z.ZodType | undefined
type Body = Schema | BufferedBody
export type Returns = z.ZodType | typeof empty | typeof total | TextReply | StreamReply | AnswerReply

export interface Route extends Omit<Spec<string, Access, ObjectSchema, Body, Returns>, 'params' | 'handle'> {
  method: Method
  path: string
  params: z.ZodObject
  /** Tag that groups the route in the document. */
  area?: string
  handle(request: unknown): Promise<unknown>
}

const COMMON_PARAMS: Record<string, z.ZodType<string, string>> = {
  ref: Ref,
  slug: Slug,
  branch_id_or_ref: BranchIdOrRef,
}

const defineRoute =
  (method: Method) =>
  <
    const Path extends string,
    S extends Access,
    R extends Returns,
    Q extends ObjectSchema = undefined,
    B extends Body = undefined,
  >(
    path: Path,
    spec: Optional<Path, Spec<Path, S, Q, B, R>>,
  ): Route => {
    const names = Array.from(path.matchAll(/\{(\w+)\}/g), ([, name]) => name as string)
    // The types above tie spec and handler together; a table of mixed routes can only hold their common shape.
    return { ...spec, method, path, params: paramsOf(names, spec) } as unknown as Route
  }

const declaredParam = (spec: object, name: string) =>
  'params' in spec ? (spec.params as z.ZodRawShape)[name] : undefined

/** Parameter schemas of paths that declare none of their own; hundreds of routes share a few. */
const sharedParams = new Map<string, z.ZodObject>()

function paramsOf(names: readonly string[], spec: object): z.ZodObject {
  const create = () =>
    z.object(Object.fromEntries(names.map((name) => [name, COMMON_PARAMS[name] ?? declaredParam(spec, name)])))
  if (!names.every((name) => name in COMMON_PARAMS)) return create()
  const known = sharedParams.get(names.join()) ?? create()
  sharedParams.set(names.join(), known)
  return known
}

export const get = defineRoute('GET')
export const head = defineRoute('HEAD')
export const post = defineRoute('POST')
export const put = defineRoute('PUT')
export const patch = defineRoute('PATCH')
export const del = defineRoute('DELETE')

/** Whether a request may omit its JSON body. */
export const isOptional = (body: z.ZodType): body is z.ZodOptional => body instanceof z.ZodOptional

export const isText = (returns: Returns): returns is TextReply =>
  typeof returns === 'object' && 'contentType' in returns
export const isStream = (returns: Returns): returns is StreamReply =>
  typeof returns === 'object' && 'streams' in returns
export const isAnswer = (returns: Returns): returns is AnswerReply =>
  typeof returns === 'object' && 'answers' in returns
export const isSchema = (returns: Returns): returns is z.ZodType =>
  returns !== empty && returns !== total && !isText(returns) && !isStream(returns) && !isAnswer(returns)

export const area = (name: string, routes: readonly Route[]): readonly Route[] =>
  routes.map((route) => ({ ...route, area: name }))

const REF_ERRORS: readonly ErrorCode[] = ['bad_request.invalid_ref', 'not_found.project']
const SLUG_ERRORS: readonly ErrorCode[] = ['bad_request.invalid_slug', 'not_found.organization']
const BRANCH_ERRORS: readonly ErrorCode[] = ['bad_request.validation_failed', 'not_found.branch']
const BODY_ERRORS: readonly ErrorCode[] = ['bad_request.malformed_json', 'payload_too_large', 'unsupported_media_type']

/** Scope that the token must have: the scope of the row, or else its permission. */
export const scopeOf = ({ scope, permission }: Pick<Route, 'scope' | 'permission'>): Scope | undefined =>
  SCOPES.find((known) => known === scope) ?? permission

/** Whether the route changes its project, which is refused once the project is being removed. Some POST routes only read. */
export const changesProject = ({ method, path, ...route }: Route): boolean =>
  path.includes('{ref}') &&
  (['PUT', 'PATCH', 'DELETE'].includes(method) || (method === 'POST' && scopeOf(route)?.endsWith(':write') === true))

/** Whether unknown query parameters are refused. OAuth servers must ignore them (RFC 6749, 3.1). */
export const refusesUnknownQuery = ({ path }: Pick<Route, 'path'>): boolean => !isOAuthPath(path)

/** Every error that a route may return: those its row implies and those the row lists. */
export function errorsOf(route: Route): readonly ErrorCode[] {
  const { scope, permission, params, query, body, bodySizeBytesMax = 0, errors = [] } = route
  const { ref, slug, branch_id_or_ref: branch, ...others } = params.shape
  const validates =
    refusesUnknownQuery(route) || Object.keys(others).length > 0 || query !== undefined || body !== undefined
  const refuses = scopeOf({ scope, permission }) !== undefined
  const codes = new Set<ErrorCode>([
    ...(ref ? REF_ERRORS : []),
    ...(slug ? SLUG_ERRORS : []),
    ...(branch ? BRANCH_ERRORS : []),
    ...(isBufferedBody(body) ? bufferedBodyErrors(body) : body ? BODY_ERRORS : []),
    ...memoryErrors({ sizeBytesMax: bodySizeBytesMax }),
    ...errors,
    'request_timeout',
    'too_many_requests',
    'internal_server_error',
    'service_unavailable.control_database',
  ])
  if (changesProject(route)) codes.add('conflict.project_status')
  if (validates) codes.add('bad_request.validation_failed')
  if (scope !== 'public') codes.add('unauthorized').add('forbidden.access_disabled')
  if (refuses) codes.add('forbidden.permission_denied')
  return Array.from(codes)
}
