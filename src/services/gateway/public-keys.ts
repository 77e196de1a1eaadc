import type { SystemCtx } from '../../ctx.ts'
import { createCtx } from '../../ctx.ts'
import type { Bindings } from '../../platform/bindings.ts'
import { describeError } from '../../platform/http/log.ts'
import { limitHeaders, takeAnonymousQuota } from '../../platform/rate-limit/quota.ts'
import { openProject } from './open-project.ts'
import type { ProjectAddress } from './project-address.ts'
import { publicKeysOf } from './trust.ts'

const PATH = '/auth/v1/.well-known/jwks.json'
/** Time for which verifiers may cache the keys, and may thus accept a revoked key. */
const MAX_AGE_SECONDS = 60

interface Call {
  request: Request
  ref: string
  bindings: Bindings
  execution: ExecutionContext
}

/** The ref of the project whose public keys are requested; undefined for any other request. */
export const jwksRefOf = ({ ref, path }: ProjectAddress): string | undefined => (path === PATH ? ref : undefined)

/** Serves the public keys of a project as a JWKS, for anyone who verifies its tokens. */
export async function servePublicKeys(call: Call): Promise<Response> {
  const { request, ref, bindings, execution } = call
  const ctx = createCtx({ bindings, waitUntil: (work) => execution.waitUntil(work) })
  const response = await answer(ctx, call).catch((error) => {
    ctx.log.error('failed', { code: 'public_keys', error: describeError(error) })
    return reply(503, { message: 'Service Unavailable' }, { 'retry-after': '1' })
  })
  ctx.log.info('request', { method: request.method, path: PATH, status: response.status, project: ref })
  return response
}

async function answer(ctx: SystemCtx, { request: { method, headers }, ref, bindings }: Call): Promise<Response> {
  if (method === 'OPTIONS') return preflight()
  if (method !== 'GET' && method !== 'HEAD') return reply(405, { message: 'Method Not Allowed' }, ALLOW)
  const project = await openProject(ctx, ref)
  if (project) {
    const caching = { 'cache-control': `public, max-age=${MAX_AGE_SECONDS}` }
    return reply(200, { keys: publicKeysOf(project.trust) }, caching, method)
  }
  // Unknown project refs count against the anonymous rate limit of the management API.
  const decision = await takeAnonymousQuota(ctx, { headers, limiters: bindings.RATE_LIMITERS })
  return decision.allowed
    ? reply(404, { message: 'Project not found' }, {}, method)
    : reply(429, { message: 'Rate limit exceeded' }, limitHeaders(decision), method)
}

const ALLOW = { allow: 'GET, HEAD, OPTIONS' }

const preflight = () =>
  new Response(null, {
    status: 204,
    headers: {
      'access-control-allow-origin': '*',
      'access-control-allow-methods': 'GET,HEAD',
      'access-control-allow-headers': '*',
      'access-control-max-age': '3600',
    },
  })

function reply(status: number, body: unknown, headers: Record<string, string>, method = 'GET'): Response {
  return new Response(method === 'HEAD' ? null : JSON.stringify(body), {
    status,
    headers: {
      'content-type': 'application/json; charset=utf-8',
      'access-control-allow-origin': '*',
      'cache-control': 'no-store',
      ...headers,
    },
  })
}
