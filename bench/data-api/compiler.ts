import type pg from 'pg'
import type { BatchRequest, Row } from '../../src/engine/engine.ts'
import { describeRequest, headersOf } from '../../src/services/data-api/caller.ts'
import { introspect } from '../../src/services/data-api/schema/introspection.ts'
import { respond } from '../../src/services/data-api/serve-data-api.ts'
import type { OpenedProject } from '../../src/services/gateway/open-project.ts'
import { percentile } from '../measure.ts'

const WARM_UPS = 2_000
const REQUESTS = 500

/** The row of the main statement of a request. */
const ROW: Row = { rows: 1, total: '1', body: '[]', headers: null, status: null, updated: 0 }

const INTROSPECTION = introspect([]).text

/** Runs requests in this process up to their statements; only those that read the schema are sent. */
export function openCompiler(project: OpenedProject, client: pg.Client) {
  let sent: BatchRequest | undefined
  let sentAt = 0
  const engine = {
    async runBatch(batch: BatchRequest): Promise<Row[][]> {
      sentAt = performance.now()
      sent = batch
      const { statements } = batch
      const [, introspection] = statements
      if (introspection?.text !== INTROSPECTION) return statements.map(() => [ROW])
      await client.query('set search_path = pg_catalog')
      const { rows } = await client.query(introspection.text, [...introspection.params])
      return [[], rows]
    },
  }
  // The part of a context that a request needs.
  const ctx = { engine, now: () => new Date() } as unknown as Parameters<typeof respond>[0]['ctx']

  async function compile(request: Request, rowsMax: number): Promise<number> {
    const path = new URL(request.url).pathname.replace('/rest/v1', '')
    const startedAt = performance.now()
    const headers = headersOf(request)
    const description = describeRequest(request.method, path, headers)
    const caller = { role: 'service_role', claims: { role: 'service_role' }, ...description }
    const address = { ref: project.ref, path, service: 'rest' } as const
    await respond({ ctx, project, config: { ...project.dataApi, rowsMax } }, caller, { request, headers, address })
    return sentAt - startedAt
  }

  return {
    /** The statements that a request sends in its one round trip, with the options of their session. */
    async batchOf(request: Request): Promise<BatchRequest> {
      await compile(request, project.dataApi.rowsMax)
      if (!sent) throw new Error('nothing was sent')
      return sent
    },
    /** Median time from a request to its statements, in milliseconds. */
    async medianMs(next: () => Request): Promise<number> {
      const ms: number[] = []
      for (let n = 0; n < WARM_UPS + REQUESTS; n++) {
        // No request repeats an earlier one, whose statement would be used again.
        const each = await compile(next(), n)
        if (n >= WARM_UPS) ms.push(each)
      }
      return percentile(ms, 0.5)
    },
  }
}
