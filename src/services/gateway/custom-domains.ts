import { createCtx } from '../../ctx.ts'
import type { Bindings } from '../../platform/bindings.ts'
import { describeError } from '../../platform/http/log.ts'
import { projectOfHost } from './hostnames.ts'
import { aliasIn, type Located, locateAs } from './project-address.ts'

interface Call {
  request: Request
  bindings: Bindings
  execution: ExecutionContext
}

/** Runs `next` after a custom hostname or vanity subdomain was resolved to its project; any other host needs no lookup. */
export function withCustomDomain<T>(
  call: Call,
  located: Located,
  next: (located: Located) => T,
): T | Promise<Awaited<T> | Response> {
  const name = aliasIn(located.url, call.bindings)
  return name === undefined ? next(located) : resolveHostname(call, { located, name }, next)
}

async function resolveHostname<T>(
  { request, bindings, execution }: Call,
  { located, name }: { located: Located; name: string },
  next: (located: Located) => T,
): Promise<Awaited<T> | Response> {
  const ctx = createCtx({ bindings, waitUntil: (work) => execution.waitUntil(work) })
  let found = located
  try {
    const ref = await projectOfHost(() => ctx, name, ctx.now().getTime())
    if (ref !== undefined) found = locateAs(request, located.url, ref)
  } catch (error) {
    ctx.log.error('failed', { code: 'host_name', error: describeError(error) })
    return Response.json({ message: 'Service Unavailable' }, { status: 503, headers: { 'retry-after': '1' } })
  }
  return await next(found)
}
