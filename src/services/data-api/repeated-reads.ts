import { SizedCache } from '../../platform/sized-cache.ts'
import type { RequestHead, Target } from './api-request.ts'
import type { ApiRequest, Compiled } from './compile.ts'
import type { DataApi } from './execute.ts'
import type { LoadedSchema } from './schema/types.ts'

interface Read {
  request: ApiRequest
  compiled: Compiled
  /** The schema for which it was compiled. A weak reference, because a schema may take much more memory. */
  schema: WeakRef<LoadedSchema>
}

/** Bytes that a parsed query takes for each character of its text. */
const PARSED_BYTES = 30

/** The least recently used reads of all projects, by everything but the schema that their statements depend on. */
const kept = new SizedCache<Read>({ sizeMax: 8 * 1024 * 1024 })

/**
 * Finds the earlier read of a table that is equal to a request, which then need not be parsed and compiled again.
 * Undefined for requests that are no such reads.
 */
export function repeatedReads(head: RequestHead, target: Target, { project, config }: DataApi) {
  if (target.kind !== 'table' || (head.method !== 'GET' && head.method !== 'HEAD')) return undefined
  const key = JSON.stringify([project.ref, head, target.name, config.rowsMax])
  return {
    find(schema: LoadedSchema): Read | undefined {
      const read = kept.get(key)
      return read?.schema.deref() === schema ? read : undefined
    },
    keep(schema: LoadedSchema, request: ApiRequest, compiled: Compiled): void {
      const size = PARSED_BYTES * head.query.length + key.length + compiled.main.text.length
      kept.set(key, { request, compiled, schema: new WeakRef(schema) }, size)
    },
  }
}
