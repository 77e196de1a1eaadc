import { SizedCache } from '../../platform/sized-cache.ts'
import type { RequestHead, Target } from './api-request.ts'
import type { ApiRequest, Compiled } from './compile.ts'
import type { DataApi } from './execute.ts'
import type { Payload } from './request/payload.ts'
import type { LoadedSchema } from './schema/types.ts'

interface Kept {
  request: ApiRequest
  compiled: Compiled
}

/** Kept requests by all that their statements depend on. Requests of a replaced schema are not found again, and are evicted in time. */
const kept = new SizedCache<Kept>({ sizeMax: 8 * 1024 * 1024 })

/** Limit for the length of a key. Requests with longer keys are rare, and each would take the place of many others. */
const KEY_LENGTH_MAX = 4_096

/** Bytes that a kept request takes without its texts. */
const REQUEST_BYTES = 3_000
/** Bytes that parsing adds for each character. */
const PARSED_BYTES = 70

interface Described {
  head: RequestHead
  target: Target
  payload: Payload | undefined
}

/**
 * Finds and keeps the request that has the same statement as this one. Requests with bodies have the same statement if
 * only the values in their bodies differ. The values of a form are parts of its statement, so forms are not kept.
 */
export function repeatedRequests({ project, config }: DataApi, { head, target, payload }: Described) {
  const isForm = payload?.kind === 'json' && payload.fields !== undefined
  const shape = isForm || !payload ? '' : JSON.stringify(payload)
  const text = `${JSON.stringify([project.ref, config.rowsMax, head, target])} ${shape}`
  const isKept = !isForm && text.length <= KEY_LENGTH_MAX
  const keyFor = ({ id }: LoadedSchema) => `${id} ${text}`
  return {
    find: (schema: LoadedSchema | undefined): Kept | undefined =>
      isKept && schema ? kept.get(keyFor(schema)) : undefined,
    keep(schema: LoadedSchema, request: ApiRequest, compiled: Compiled): void {
      if (!isKept) return
      const { main, estimate } = compiled
      const texts = text.length + main.text.length + (estimate?.text.length ?? 0)
      const parsed = head.query.length + (head.prefer?.length ?? 0) + shape.length
      kept.set(keyFor(schema), { request, compiled }, REQUEST_BYTES + 2 * texts + PARSED_BYTES * parsed)
    },
  }
}
