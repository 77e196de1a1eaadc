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

/** Requests by all that their statements depend on. Those of a replaced schema are not found again, and drop out in time. */
const kept = new SizedCache<Kept>({ sizeMax: 8 * 1024 * 1024 })

/** Longer requests are rare, and would take the place of many others. */
const KEY_LENGTH_MAX = 4_096

/** Bytes in memory: of a request without its texts, and of what is parsed for each character of a text. */
const REQUEST_BYTES = 3_000
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
  const text = isForm ? '' : JSON.stringify([project.ref, config.rowsMax, head, target, payload])
  const isKept = !isForm && text.length <= KEY_LENGTH_MAX
  const keyFor = ({ id }: LoadedSchema) => `${id} ${text}`
  return {
    find: (schema: LoadedSchema | undefined): Kept | undefined =>
      isKept && schema ? kept.get(keyFor(schema)) : undefined,
    keep(schema: LoadedSchema, request: ApiRequest, compiled: Compiled): void {
      if (!isKept) return
      const { main, estimate } = compiled
      const texts = text.length + main.text.length + (estimate?.text.length ?? 0)
      const parsed = head.query.length + (head.prefer?.length ?? 0) + JSON.stringify(payload ?? '').length
      kept.set(keyFor(schema), { request, compiled }, REQUEST_BYTES + 2 * texts + PARSED_BYTES * parsed)
    },
  }
}
