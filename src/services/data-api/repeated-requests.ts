import { SizedCache } from '../../platform/sized-cache.ts'
import type { RequestHead, Target } from './api-request.ts'
import type { ApiRequest, Compiled } from './compile.ts'
import type { DataApi } from './execute.ts'
import type { Payload } from './request/payload.ts'
import type { LoadedSchema } from './schema/types.ts'

interface Kept {
  request: ApiRequest
  compiled: Compiled
  /** The schema for which the request was compiled. A weak reference, because a schema may take much more memory. */
  schema: WeakRef<LoadedSchema>
}

/** Bytes that a parsed query takes for each character of its text. */
const PARSED_BYTES = 30

/** The least recently used requests of all projects, by all but the schema that their statements depend on. */
const kept = new SizedCache<Kept>({ sizeMax: 8 * 1024 * 1024 })

/** Finds the earlier request that has the same statement. Bodies have the same one if they differ only in their values. */
export function repeatedRequests(
  { project, config }: DataApi,
  { head, target, payload }: { head: RequestHead; target: Target; payload?: Payload | undefined },
) {
  const key = JSON.stringify([project.ref, config.rowsMax, head, target, payload])
  return {
    find(schema: LoadedSchema | undefined): Kept | undefined {
      const found = schema && kept.get(key)
      return found?.schema.deref() === schema ? found : undefined
    },
    keep(schema: LoadedSchema, request: ApiRequest, compiled: Compiled): void {
      const size = PARSED_BYTES * head.query.length + key.length + compiled.main.text.length
      kept.set(key, { request, compiled, schema: new WeakRef(schema) }, size)
    },
  }
}
