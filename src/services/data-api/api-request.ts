import type { DataApiConfig } from '../gateway/data-api-config.ts'
import type { ApiRequest } from './compile.ts'
import { requestError } from './data-api-error.ts'
import { parseForm } from './request/form-encoding.ts'
import { readPayload } from './request/payload.ts'
import { parsePreferences } from './request/preferences.ts'
import { type Parameter, parseQuery } from './request/query-string.ts'

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

export async function apiRequestOf(request: Request, target: Target, config: DataApiConfig): Promise<ApiRequest> {
  const { method, headers } = request
  const isCall = target.kind === 'routine'
  const methods = target.kind === 'root' ? READS : [...READS, 'DELETE', ...WRITES]
  if (!methods.includes(method)) {
    throw requestError('PGRST117', { message: `Unsupported HTTP method: ${method}` })
  }
  const parameters = parametersOf(request)
  const hasBody = WRITES.includes(method)
  const parsed = parseQuery(parameters, { isCall: isCall && !hasBody })
  // As in PostgREST, a PUT ignores `columns`, because its body is the whole row.
  const query = method === 'PUT' ? { ...parsed, columns: undefined } : parsed
  const options = { namesColumns: query.columns !== undefined, isInsert: method === 'POST' && !isCall }
  return {
    ...{ method, headers, parameters, isCall, name: target.kind === 'root' ? '' : target.name, config },
    schema: schemaFor(request, config),
    query,
    preferences: parsePreferences(headers.get('prefer')),
    payload: hasBody ? await readPayload(request, options) : undefined,
  }
}

function parametersOf({ url }: Request): Parameter[] {
  const start = url.indexOf('?')
  return start < 0 ? [] : parseForm(url.slice(start + 1)).filter(([name]) => name !== 'apikey')
}

/** The schema that the profile headers name, else the first exposed one. */
export function schemaFor({ method, headers }: Request, { schemas }: DataApiConfig): string {
  const profile = headers.get(method === 'GET' || method === 'HEAD' ? 'accept-profile' : 'content-profile')
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
