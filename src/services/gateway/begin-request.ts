import type { MiddlewareHandler } from 'hono'
import { type Actor, appIdOf, callerOf } from '../../actor.ts'
import { createCtx, type SystemCtx } from '../../ctx.ts'
import type { Bindings } from '../../platform/bindings.ts'
import { currentQueryCount, type QueryCount } from '../../platform/db/client.ts'
import { newTimedId } from '../../platform/db/id.ts'
import { loggedPath, type RequestFacts } from '../../platform/http/log.ts'
import { measureRequest } from '../../platform/metrics/counters.ts'
import { locate } from './project-address.ts'

/** The Hono environment of a request that has begun. */
export interface RequestEnv {
  Bindings: Bindings
  Variables: {
    ctx: SystemCtx
    /** Fields of the request's log line, collected while the request runs. */
    facts: RequestFacts & QueryCount
  }
}

interface Options<E extends RequestEnv> {
  service: 'management' | 'storage'
  actor: Actor
  /** The `operation` label of the request in metrics. */
  operationOf(facts: E['Variables']['facts']): string
}

/** Gives each request an id and a context. Once it is answered, counts it and writes its log line. */
export const beginRequest = <E extends RequestEnv>({ service, actor, operationOf }: Options<E>): MiddlewareHandler<E> =>
  async function beginRequest(c, next) {
    const startedAt = performance.now()
    const requestId = newTimedId(new Date())
    const facts: RequestEnv['Variables']['facts'] = {}
    const waitUntil = (work: Promise<unknown>) => c.executionCtx.waitUntil(work)
    const ctx = { ...createCtx({ bindings: c.env, waitUntil, requestId }), actor }
    c.set('facts', facts)
    c.set('ctx', ctx)
    await currentQueryCount.run(facts, next)
    c.res.headers.set('x-request-id', requestId)
    const caller = callerOf(c.var.ctx.actor)
    const { status } = c.res
    const ms = Math.round((performance.now() - startedAt) * 10) / 10
    measureRequest(ctx, { service, operation: operationOf(facts), status, ms })
    ctx.log.info('request', {
      method: c.req.method,
      path: loggedPath(locate(c.req.raw, c.env).url.pathname),
      status,
      ms,
      ...(caller && { user: caller.userId, app: appIdOf(caller) }),
      ...facts,
    })
  }
