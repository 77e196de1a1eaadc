import { isSameSecret } from '../platform/secrets/equal.ts'
import { buildFunction } from './build-function.ts'
import { Issues, issueOf } from './build-issues.ts'
import { Problem, Unavailable } from './build-problem.ts'
import { buildWorker } from './build-worker.ts'
import { probe } from './probe.ts'
import { type BuildResult, FILE_FIELD, FunctionBuild, KEY_HEADER, Probe, SPEC_FIELD } from './protocol.ts'
import type { Bindings } from './settings.ts'
import { readSource } from './source.ts'

type Handler = (request: Request, bindings: Bindings) => Promise<unknown>

const HANDLERS: Record<string, Handler> = {
  '/function': serveFunctionBuild,
  '/worker': ({ body }, bindings) => buildWorker(bindings, body),
  '/probe': async (request, bindings) => probe(bindings, Probe.parse(await request.json())),
}

/** Serves only the API's Worker: through a service binding, or at a port with a key. */
export default {
  async fetch(request, bindings, ctx): Promise<Response> {
    const { BUILDER_KEY: key } = bindings
    if (key && !isSameSecret(request.headers.get(KEY_HEADER) ?? '', key)) return new Response(null, { status: 403 })
    const handler = HANDLERS[new URL(request.url).pathname]
    if (request.method !== 'POST' || !handler) return new Response(null, { status: 404 })
    const responding = answer(() => handler(request, bindings))
    // Builds share a mutex, so a build must finish even if its caller disconnects.
    ctx.waitUntil(responding)
    const result = await responding
    return result instanceof Response ? result : Response.json(result)
  },
} satisfies ExportedHandler<Bindings>

async function serveFunctionBuild(request: Request, bindings: Bindings): Promise<BuildResult> {
  const form = await request.formData()
  const spec = FunctionBuild.parse(JSON.parse(String(form.get(SPEC_FIELD))))
  return { image: await buildFunction(bindings, spec, await readSource(form.getAll(FILE_FIELD))) }
}

/** Converts problems of the program to a response; other errors are rethrown. */
async function answer(work: () => Promise<unknown>): Promise<unknown> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof Issues) return { issues: error.issues }
    if (error instanceof Problem) return { issues: [issueOf(error)] }
    if (error instanceof Unavailable) return { unavailable: error.message }
    if (isStackOverflow(error)) return { issues: [{ message: 'The program is nested too deeply: use fewer levels' }] }
    throw error
  }
}

/** The bundler and the parsers of settings recurse over what the developer wrote. */
const isStackOverflow = (error: unknown): boolean => error instanceof RangeError && /call stack/.test(error.message)
