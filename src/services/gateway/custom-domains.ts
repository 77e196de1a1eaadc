import { createCtx } from '../../ctx.ts'
import type { Bindings } from '../../platform/bindings.ts'
import { describeError } from '../../platform/http/log.ts'
import { addressIn, limitHeaders, rateLimitCaller, takeQuota } from '../../platform/rate-limit/quota.ts'
import type { Decision } from '../../platform/rate-limit/rule.ts'
import { hasLed, projectOfHost } from './hostnames.ts'
import { aliasIn, locate, locateAs } from './project-address.ts'

interface Call {
  request: Request
  bindings: Bindings
  execution: ExecutionContext
}

const QUOTA_SCOPE = 'host names'

const tooMany = (decision: Decision): Response =>
  Response.json({ message: 'Too many requests for unknown hosts' }, { status: 429, headers: limitHeaders(decision) })

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
  const ctx = createCtx({ bindings, waitUntil: (work) => execution.waitUntil(work) })
  try {
    const now = ctx.now().getTime()
    if (!hasLed(name)) {
      const caller = rateLimitCaller(undefined, addressIn(ctx, request.headers))
      const decision = await takeQuota(bindings.RATE_LIMITERS, { caller, scope: QUOTA_SCOPE, now }, 'standard')
      if (!decision.allowed) return tooMany(decision)
    }
    const ref = await projectOfHost(() => ctx, name, now)
    if (ref !== undefined) locateAs(request, url, ref)
  } catch (error) {
    ctx.log.error('failed', { code: 'host_name', error: describeError(error) })
    return Response.json({ message: 'Service Unavailable' }, { status: 503, headers: { 'retry-after': '1' } })
  }
  return await goOn()
}
