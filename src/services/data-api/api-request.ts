import type { DataApiConfig } from '../gateway/data-api-config.ts'
import type { RequestHeaders } from './caller.ts'
import type { ApiRequest } from './compile.ts'
import { requestError } from './data-api-error.ts'
import { parseForm } from './request/form-encoding.ts'
import { readBody } from './request/payload.ts'
import { parsePreferences } from './request/preferences.ts'
import { parseQuery } from './request/query-string.ts'

/** The target that the path after `/rest/v1` names. */
export type Target = { kind: 'root' } | { kind: 'table' | 'routine'; name: string }

export function targetOf(path: string): Target {
  const segments = path.split('/').slice(1)
  if (segments.at(-1) === '') segments.pop()
  const [first, second, ...more] = segments.map(decodeSegment)
  if (first === undefined) return { kind: 'root' }
  if (second === undefined) return { kind: 'table', name: first }
  if (first === 'rpc' && more.length === 0) return { kind: 'routine', name: second }
  throw requestError('PGRST125')
}

function decodeSegment(segment: string): string {
  try {
    return decodeURIComponent(segment)
  } catch {
    throw requestError('PGRST125')
  }
}

const READS = ['GET', 'HEAD']
const WRITES = ['POST', 'PATCH', 'PUT']

/** The parts of a request that decide what it means, beside its target and its body. */
export interface RequestHead {
  method: string
  /** The query string, as the URL encodes it. */
  query: string
  accept: string | null
  prefer: string | null
  /** The header that names the schema: `Accept-Profile` of a read, else `Content-Profile`. */
  profile: string | null
  range: string | null
}

interface ReadRequest {
  request: ApiRequest
  /** The text of the body, a parameter of the statement; undefined for a method without a body. */
  body: string | undefined
}

export function headOf({ method, url }: Request, headers: RequestHeaders): RequestHead {
  const start = url.indexOf('?')
  return {
    ...{ method, query: start < 0 ? '' : url.slice(start + 1) },
    accept: headers.accept ?? null,
    prefer: headers.prefer ?? null,
    profile: headers[READS.includes(method) ? 'accept-profile' : 'content-profile'] ?? null,
    range: headers.range ?? null,
  }
}

export const hasBody = ({ method }: RequestHead): boolean => WRITES.includes(method)

/** Parses a request, and reads its body if the method has one. */
export async function apiRequestOf(
  request: Request,
  { head, target, config }: { head: RequestHead; target: Target; config: DataApiConfig },
): Promise<ReadRequest> {
  const { method, accept, range } = head
  const isCall = target.kind === 'routine'
  const methods = target.kind === 'root' ? READS : [...READS, 'DELETE', ...WRITES]
  if (!methods.includes(method)) {
    throw requestError('PGRST117', { message: `Unsupported HTTP method: ${method}` })
  }
  const parameters = parseForm(head.query).filter(([name]) => name !== 'apikey')
  const parsed = parseQuery(parameters, { isCall: isCall && !hasBody(head) })
  // As in PostgREST, a PUT ignores `columns`, because its body is the whole row.
  const query = method === 'PUT' ? { ...parsed, columns: undefined } : parsed
  const options = { namesColumns: query.columns !== undefined, isInsert: method === 'POST' && !isCall }
  const schema = schemaFor(head, config)
  const preferences = parsePreferences(head.prefer)
  const body = hasBody(head) ? await readBody(request, options) : undefined
  const name = target.kind === 'root' ? '' : target.name
  return {
    request: {
      ...{ method, accept, range, parameters, isCall, name, config, schema, query, preferences },
      payload: body?.payload,
    },
    body: body?.text,
  }
}

/** The schema that the profile headers name, else the first exposed one. */
export function schemaFor({ profile }: RequestHead, { schemas }: DataApiConfig): string {
  const schema = profile ?? schemas[0] ?? 'public'
  if (schemas.includes(schema)) return schema
  throw requestError('PGRST106', {
    message: `Invalid schema: ${schema}`,
    hint:
      schemas.length === 0
        ? 'The Data API is disabled'
        : `Only the following schemas are exposed: ${schemas.join(', ')}`,
  })
}
