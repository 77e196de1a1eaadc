import type { DataApiConfig } from '../gateway/data-api-config.ts'
import { type RequestHead, schemaFor, type Target } from './api-request.ts'
import { CORS_HEADERS } from './cors.ts'
import { requestError } from './data-api-error.ts'
import { keyOf, type SchemaCache, type Table } from './schema/types.ts'

/** Answers OPTIONS with the methods of a table or function. */
export function allowedMethods(
  cache: SchemaCache,
  target: Target,
  { head, config, requestId }: { head: RequestHead; config: DataApiConfig; requestId: string },
): Response {
  const methods = methodsOf(cache, target, schemaFor(head, config))
  const headers = { ...CORS_HEADERS, allow: methods.join(','), 'content-length': '0', 'x-request-id': requestId }
  return new Response(null, { status: 200, headers })
}

function methodsOf(cache: SchemaCache, target: Target, schema: string): string[] {
  if (target.kind === 'root') return ['OPTIONS', 'GET', 'HEAD']
  const { name } = target
  if (target.kind === 'routine') {
    const routines = cache.functions.get(keyOf({ schema, name }))
    if (!routines)
      throw requestError('PGRST202', { message: `Could not find the function ${schema}.${name} in the schema cache` })
    return ['OPTIONS', ...(routines.some(({ volatility }) => volatility !== 'v') ? ['GET', 'HEAD'] : []), 'POST']
  }
  const table = cache.tables.get(keyOf({ schema, name }))
  if (!table)
    throw requestError('PGRST205', { message: `Could not find the table '${schema}.${name}' in the schema cache` })
  return ['OPTIONS', 'GET', 'HEAD', ...changesOf(table)]
}

function changesOf({ insertable, updatable, deletable, primaryKey }: Table): string[] {
  const isReplaceable = insertable && updatable && primaryKey.length > 0
  return [
    ...(insertable ? ['POST'] : []),
    ...(isReplaceable ? ['PUT'] : []),
    ...(updatable ? ['PATCH'] : []),
    ...(deletable ? ['DELETE'] : []),
  ]
}
