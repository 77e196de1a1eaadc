import { buildFunction } from './function.ts'
import { Issues, issueOf } from './issues.ts'
import { Problem, Unavailable } from './problem.ts'
import { type BuildResult, FILE_FIELD, FunctionBuild, SPEC_FIELD } from './protocol.ts'
import type { Bindings } from './settings.ts'
import { readSource } from './source.ts'
import { buildWorker } from './worker.ts'

/** Only the API's Worker reaches it, by its service binding. */
export default {
  async fetch(request, bindings, ctx): Promise<Response> {
    const { pathname } = new URL(request.url)
    const work = request.method === 'POST' ? WORK[pathname] : undefined
    if (!work) return new Response(null, { status: 404 })
    const result = answer(() => work(request, bindings))
    // Builds wait for each other, and one that its caller leaves must still come to its end.
    ctx.waitUntil(result)
    return Response.json(await result)
  },
} satisfies ExportedHandler<Bindings>

const WORK: Record<string, (request: Request, bindings: Bindings) => Promise<BuildResult>> = {
  '/function': functionOf,
  '/worker': async ({ body }, bindings) => ({ image: await buildWorker(bindings, body) }),
}

async function functionOf(request: Request, bindings: Bindings): Promise<BuildResult> {
  const form = await request.formData()
  const spec = FunctionBuild.parse(JSON.parse(String(form.get(SPEC_FIELD))))
  return { image: await buildFunction(bindings, spec, await readSource(form.getAll(FILE_FIELD))) }
}

async function answer<T>(work: () => Promise<T>) {
  try {
    return await work()
  } catch (error) {
    if (error instanceof Issues) return { issues: error.issues }
    if (error instanceof Problem) return { issues: [issueOf(error)] }
    if (error instanceof Unavailable) return { unavailable: error.message }
    throw error
  }
}
