import { buildFunction } from './function.ts'
import { FILE_FIELD, FunctionBuild, SPEC_FIELD } from './protocol.ts'
import { buildWorker } from './worker.ts'

/** Only the API's Worker reaches it, by its service binding. */
export default {
  async fetch(request: Request): Promise<Response> {
    const { pathname } = new URL(request.url)
    if (request.method === 'POST' && pathname === '/worker') return Response.json(await buildWorker(request.body))
    if (request.method !== 'POST' || pathname !== '/function') return new Response(null, { status: 404 })
    const form = await request.formData()
    const spec = FunctionBuild.parse(JSON.parse(String(form.get(SPEC_FIELD))))
    return Response.json(await buildFunction(spec, await filesOf(form)))
  },
} satisfies ExportedHandler

async function filesOf(form: FormData): Promise<Map<string, Uint8Array>> {
  const files = new Map<string, Uint8Array>()
  for (const part of form.getAll(FILE_FIELD)) if (typeof part !== 'string') files.set(part.name, await part.bytes())
  return files
}
