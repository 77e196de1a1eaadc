import { createCtx } from '../../ctx.ts'
import type { Bindings } from '../../platform/bindings.ts'
import { describeError } from '../../platform/http/log.ts'
import { limitHeaders, takeAnonymousQuota } from '../../platform/rate-limit/quota.ts'
import type { Decision } from '../../platform/rate-limit/rule.ts'
import { projectOfHost, wasResolved } from './hostnames.ts'
import { aliasIn, type Located, locateAs } from './project-address.ts'

interface Call {
  request: Request
  bindings: Bindings
  execution: ExecutionContext
}

const QUOTA_SCOPE = 'host names'

const tooMany = (decision: Decision): Response =>
  Response.json({ message: 'Too many requests for unknown hosts' }, { status: 429, headers: limitHeaders(decision) })

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
    const now = ctx.now().getTime()
    if (!wasResolved(name)) {
      const anonymous = { headers: request.headers, limiters: bindings.RATE_LIMITERS }
      const decision = await takeAnonymousQuota(ctx, anonymous, QUOTA_SCOPE)
      if (!decision.allowed) return tooMany(decision)
    }
    const ref = await projectOfHost(() => ctx, name, now)
    if (ref !== undefined) found = locateAs(request, located.url, ref)
  } catch (error) {
    ctx.log.error('failed', { code: 'host_name', error: describeError(error) })
    return Response.json({ message: 'Service Unavailable' }, { status: 503, headers: { 'retry-after': '1' } })
  }
  return await next(found)
}
