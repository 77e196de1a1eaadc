import { createCtx } from '../ctx.ts'
import type { Bindings } from '../env.ts'
import { describeError } from '../http/log.ts'
import { aliasIn, locate, locateAs } from '../http/project-address.ts'
import { projectOfHost } from './hosts.ts'

interface Call {
  request: Request
  bindings: Bindings
  execution: ExecutionContext
}

/** Goes on once it is known which project the request is for, where its host has a name that one may have been given. */
export function enter<T>(call: Call, goOn: () => T): T | Promise<Awaited<T> | Response> {
  const { url } = locate(call.request, call.bindings)
  const name = aliasIn(url, call.bindings)
  return name === undefined ? goOn() : enterBy(call, { url, name }, goOn)
}

async function enterBy<T>(
  { request, bindings, execution }: Call,
  { url, name }: { url: URL; name: string },
  goOn: () => T,
): Promise<Awaited<T> | Response> {
  const clock = request.headers.get('x-test-clock') ?? undefined
  const ctx = createCtx({ bindings, waitUntil: (work) => execution.waitUntil(work), clock })
  try {
    const ref = await projectOfHost(() => ctx, name, ctx.now().getTime())
    if (ref !== undefined) locateAs(request, url, ref)
  } catch (error) {
    ctx.log.error('failed', { code: 'host_name', error: describeError(error) })
    return Response.json({ message: 'Service Unavailable' }, { status: 503, headers: { 'retry-after': '1' } })
  }
  return await goOn()
}
