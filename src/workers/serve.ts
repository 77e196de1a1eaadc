import { openProject } from '../auth/project.ts'
import { InvalidCredential, verifyCredential } from '../auth/project-token.ts'
import { createCtx } from '../ctx.ts'
import { countedFor } from '../db/client.ts'
import type { Bindings, LogFields, SystemCtx } from '../env.ts'
import { describeError } from '../http/log.ts'
import { projectAddressOf } from '../http/project-address.ts'
import { NONE_HEADER, PLAN_HEADER } from './headers.ts'
import { findPlan, type Plan } from './plan.ts'

export interface WorkerAddress {
  ref: string
  name: string
  /** What the worker is below: `/workers/v1/{name}`. */
  prefix: string
  /** As the worker sees it. */
  path: string
}

/** Clients know both spellings. */
const BELOW = /^(\/(?:workers|compute)\/v1\/([a-z0-9-]{1,63}))(\/.*)?$/

export function workerAddressOf({ url }: Request, { PROJECT_DOMAIN }: Bindings): WorkerAddress | undefined {
  const { ref, path } = projectAddressOf(new URL(url), PROJECT_DOMAIN) ?? {}
  const [, prefix, name, rest = '/'] = BELOW.exec(path ?? '') ?? []
  return ref && prefix && name ? { ref, name, prefix, path: rest } : undefined
}

interface Place {
  bindings: Bindings
  execution: ExecutionContext
}

/** One request for a worker, from the outside. */
export async function serveWorker(request: Request, address: WorkerAddress, { bindings, execution }: Place) {
  const startedAt = performance.now()
  const requestId = crypto.randomUUID()
  const facts: LogFields = {}
  const ctx = createCtx({ bindings, waitUntil: (work) => execution.waitUntil(work), requestId })
  const response = await countedFor.run(facts, () =>
    answer(ctx, request, address).catch((error) => {
      ctx.log.error('failed', { error: describeError(error) })
      return refusal(500, 'WORKER_ERROR', 'The worker ended with an error')
    }),
  )
  ctx.log.info('request', {
    method: request.method,
    path: new URL(request.url).pathname,
    status: response.status,
    ms: Math.round((performance.now() - startedAt) * 10) / 10,
    project: address.ref,
    worker: address.name,
    ...facts,
  })
  return response
}

async function answer(ctx: SystemCtx, request: Request, address: WorkerAddress): Promise<Response> {
  const found = await findPlan(ctx, address.ref, address.name)
  if (!found) return refusal(404, 'NOT_FOUND', 'There is no such worker')
  if (!found.status.startsWith('ACTIVE')) return refusal(503, 'PROJECT_INACTIVE', 'The project is not active')
  const { plan } = found
  if (plan.spec.exposure === 'private') {
    const refused = await refuseOutsider(ctx, request, plan.ref)
    if (refused) return refused
  }
  const { WORKER_INSTANCES: objects } = ctx.bindings
  const response = await objects.get(objects.idFromName(plan.workerId)).fetch(asSeenInside(request, address, plan))
  return response.headers.has(NONE_HEADER) ? refusal(503, 'NO_INSTANCE', 'The worker has no instances') : response
}

/** A private worker is for the project's own programs, which hold its service key. */
async function refuseOutsider(ctx: SystemCtx, request: Request, ref: string): Promise<Response | undefined> {
  const { headers } = request
  const token = /^Bearer +(\S+)$/i.exec(headers.get('authorization') ?? '')?.[1] ?? headers.get('apikey')
  if (!token) return refusal(401, 'UNAUTHORIZED', 'Missing authorization header')
  const project = await openProject(ctx, ref)
  if (!project) return refusal(404, 'NOT_FOUND', 'There is no such worker')
  try {
    const { role } = await verifyCredential(project, token, ctx.now())
    if (role === 'service_role') return undefined
    return refusal(403, 'FORBIDDEN', 'A private worker answers to the service_role key alone')
  } catch (error) {
    if (!(error instanceof InvalidCredential)) throw error
    return refusal(401, 'UNAUTHORIZED', 'Invalid JWT')
  }
}

/** At the root of its host, as a server of its own would be; who writes links finds the way to it beside. */
function asSeenInside(request: Request, { prefix, path }: WorkerAddress, plan: Plan): Request {
  const url = new URL(request.url)
  const outer = url.pathname.slice(0, url.pathname.indexOf(prefix) + prefix.length)
  url.pathname = path
  const inside = new Request(url, request)
  inside.headers.set('x-forwarded-prefix', outer)
  inside.headers.set(PLAN_HEADER, JSON.stringify(plan))
  return inside
}

const refusal = (status: number, code: string, message: string): Response =>
  Response.json({ code, message }, { status })
