import type * as z from 'zod'
import type { Claims } from '../../platform/jwt/credential.ts'
import type { Caller, Storage } from './database.ts'
import type { Place } from './statements/object-rows.ts'
import type { StorageErrorCode } from './storage-error.ts'

/** Access to a route, in the words of the OpenAPI document. */
export const ACCESS = {
  public: 'Requires no token.',
  'optional caller': 'A token is optional: without a valid one, only objects of public buckets can be read.',
  caller: 'Requires a valid token. The policies of the project apply to its role.',
  'service role': 'Requires a token of the role `service_role`.',
  'download URL': 'Requires the token of a signed URL for downloads in the query.',
  'upload URL': 'Requires the token of a signed URL for uploads in the query.',
  'upload token': 'Requires the token of a signed URL for uploads in the header `x-signature`.',
} as const
export type Access = keyof typeof ACCESS

/** The body of a request as a stream. */
export interface IncomingBody {
  stream: ReadableStream<Uint8Array> | null
  /** The `Content-Type`, with parameters. */
  type: string | undefined
  /** In bytes; undefined if unknown. */
  length: number | undefined
}

/** A body that the handler reads as a stream; `streams` has the published schema of each content type. */
export const streamed = (streams: Readonly<Record<string, z.ZodType>>) => ({ streams })
type StreamedBody = ReturnType<typeof streamed>
export const isStreamed = (body: Body): body is StreamedBody => body !== undefined && 'streams' in body

/** A reply for which the handler returns its JSON text, as Postgres wrote it. */
export const jsonText = <T extends z.ZodType>(json: T) => ({ json })
type JsonText = ReturnType<typeof jsonText>
export const isJsonText = (returns: Returns): returns is JsonText => 'json' in returns

interface ReplyDescription {
  description: string
  content?: Readonly<Record<string, z.ZodType>>
}
/** A reply for which the handler returns a Response. `replies` describes each status. */
export const responses = (replies: Readonly<Record<number, ReplyDescription>>) => ({ replies })
type Responses = ReturnType<typeof responses>
export const isResponses = (returns: Returns): returns is Responses => 'replies' in returns

type ObjectSchema = z.ZodObject | undefined
type Body = z.ZodType | StreamedBody | undefined
type Returns = z.ZodType | JsonText | Responses

/** One row of the route table, from which the router and the OpenAPI document are derived. */
interface Spec<Path extends string, A extends Access, Q, H, B, R> {
  /** operationId in the published document. Renaming one breaks every generated client. */
  id: string
  /** The value of `storage.operation()` in policies, and the `operation` label in metrics. */
  operation: string
  summary: string
  description?: string
  deprecated?: true
  access: A
  query?: Q
  headers?: H
  body?: B
  returns: R
  errors?: readonly StorageErrorCode[]
  handle(request: Request<Q, H, B> & Target<Path> & CallerOf<A> & ClaimsOf<A>): Promise<Reply<R>>
}

type Out<T> = T extends z.ZodType ? z.output<T> : undefined
type BodyOut<T> = T extends StreamedBody ? IncomingBody : Out<T>

type CallerOf<A extends Access> = A extends 'public' | 'download URL'
  ? unknown
  : { caller: A extends 'optional caller' ? Caller | undefined : Caller }
type ClaimsOf<A extends Access> = A extends 'download URL' | 'upload URL' ? { claims: Claims } : unknown
type Target<Path extends string> = Path extends `${string}{wildcard}`
  ? { place: Place }
  : Path extends `${string}{bucket${string}`
    ? { bucketId: string }
    : Path extends `${string}{id}`
      ? { id: string }
      : unknown

interface Request<Q, H, B> {
  storage: Storage
  method: string
  url: string
  query: Out<Q>
  headers: Out<H>
  body: BodyOut<B>
}

type Reply<R> = R extends Responses ? Response : R extends JsonText ? string : R extends z.ZodType ? z.input<R> : never
type Method = 'HEAD' | 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'

export interface Route extends Omit<Spec<string, Access, ObjectSchema, ObjectSchema, Body, Returns>, 'handle'> {
  method: Method
  path: string
  /** Tag that groups the route in the document. */
  area?: string
  handle(request: unknown): Promise<unknown>
}

const defineRoute =
  (method: Method) =>
  <
    const Path extends string,
    A extends Access,
    R extends Returns,
    Q extends ObjectSchema = undefined,
    H extends ObjectSchema = undefined,
    B extends Body = undefined,
  >(
    path: Path,
    spec: Spec<Path, A, Q, H, B, R>,
  ): Route =>
    // The types above tie spec and handler together; a table of mixed routes can only hold their common shape.
    ({ ...spec, method, path }) as unknown as Route

export const get = defineRoute('GET')
export const head = defineRoute('HEAD')
export const post = defineRoute('POST')
export const put = defineRoute('PUT')
export const patch = defineRoute('PATCH')
export const del = defineRoute('DELETE')

export const area = (name: string, routes: readonly Route[]): readonly Route[] =>
  routes.map((route) => ({ ...route, area: name }))

/** Errors of any request: of the project, and of its policies, triggers and constraints. */
export const COMMON_ERRORS: readonly StorageErrorCode[] = [
  ...(['NoSuchProject', 'ProjectUnavailable', 'ProjectPaused', 'SlowDown', 'InternalError'] as const),
  ...(['AccessDenied', 'InvalidKey', 'InvalidParameter', 'ResourceLocked', 'ResourceAlreadyExists'] as const),
  ...(['ResourceReferenced', 'RelatedResourceNotFound', 'DatabaseError', 'DatabaseTimeout'] as const),
  ...(['DatabaseReadOnly', 'DatabaseSchemaMismatch'] as const),
]
const ACCESS_ERRORS: Partial<Record<Access, readonly StorageErrorCode[]>> = {
  caller: ['InvalidRequest'],
  'service role': ['InvalidRequest', 'InvalidRole'],
  'download URL': ['InvalidRequest', 'InvalidJWT', 'InvalidSignature'],
  'upload URL': ['InvalidRequest', 'InvalidJWT', 'InvalidSignature'],
  'upload token': ['InvalidRequest', 'InvalidJWT', 'InvalidSignature'],
}
const JSON_ERRORS: readonly StorageErrorCode[] = ['InvalidRequest', 'EntityTooLarge', 'RequestAborted']
const STREAM_ERRORS: readonly StorageErrorCode[] = [...JSON_ERRORS, 'BytesUnavailable']

/** Every error that a route may return: those its row implies and those the row lists. */
export function errorsOf({ path, access, query, body, errors = [] }: Route): readonly StorageErrorCode[] {
  return Array.from(
    new Set<StorageErrorCode>([
      ...COMMON_ERRORS,
      ...(ACCESS_ERRORS[access] ?? []),
      ...(path.includes('{bucket') ? (['InvalidBucketName'] as const) : []),
      ...(query ? (['InvalidRequest'] as const) : []),
      ...(body ? (isStreamed(body) ? STREAM_ERRORS : JSON_ERRORS) : []),
      ...errors,
    ]),
  )
}
