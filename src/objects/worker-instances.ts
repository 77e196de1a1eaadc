import { DurableObject } from 'cloudflare:workers'
import { createCtx } from '../ctx.ts'
import type { Bindings } from '../env.ts'
import { NONE_HEADER, PLAN_HEADER } from '../workers/headers.ts'
import { openInstance } from '../workers/instance.ts'
import type { Plan } from '../workers/plan.ts'

interface Instance {
  deploymentId: string
  generation: number
  /** Requests that it has not answered to their end. */
  inFlight: number
  /** It has started, and answers. */
  ready: boolean
}

export interface Tally {
  live: number
  ready: number
  stale: number
}

/**
 * One object per worker: spreads its requests over its instances, each an isolate, and counts them. In memory alone: the isolates that
 * it has started end with it at the latest.
 */
export class WorkerInstances extends DurableObject<Bindings> {
  /** By the name of the isolate. */
  readonly #instances = new Map<string, Instance>()
  #stopped = false

  /** Starts what the plan declares before the first request comes. Returns why one cannot start. */
  async start(plan: Plan): Promise<string | undefined> {
    const problems = await Promise.all(
      namesOf(plan).map(async (name) => {
        const problem = await this.#open(name, plan).check()
        if (problem === undefined) this.#instance(name, plan).ready = true
        return problem
      }),
    )
    return problems.find((problem) => problem !== undefined)
  }

  /** The request of a caller, with the plan beside it. */
  override async fetch(request: Request): Promise<Response> {
    const headers = new Headers(request.headers)
    const plan = JSON.parse(headers.get(PLAN_HEADER) ?? '') as Plan
    headers.delete(PLAN_HEADER)
    const name = this.#leastBusy(plan)
    if (name === undefined || this.#stopped) return new Response(null, { status: 503, headers: { [NONE_HEADER]: '1' } })
    const instance = this.#instance(name, plan)
    instance.inFlight += 1
    const release = () => {
      instance.inFlight -= 1
    }
    try {
      const response = await this.#open(name, plan).fetch(new Request(request, { headers }))
      instance.ready = true
      this.#forgetReplaced(plan)
      return untilEnd(response, release)
    } catch (error) {
      release()
      if (instance.inFlight === 0 && !instance.ready) this.#instances.delete(name)
      throw error
    }
  }

  /** Of what was started and has not been replaced since; `plan` says what is up to date. */
  tally(plan: Pick<Plan, 'deploymentId' | 'generation'>): Tally {
    this.#forgetReplaced(plan)
    const live = Array.from(this.#instances.values())
    const current = live.filter((instance) => isCurrent(instance, plan))
    return {
      live: live.length,
      ready: current.filter(({ ready }) => ready).length,
      stale: live.length - current.length,
    }
  }

  /** Takes no request any more; those under way end by themselves. */
  stop(): void {
    this.#stopped = true
    this.#instances.clear()
  }

  #open(name: string, plan: Plan) {
    return openInstance(createCtx({ bindings: this.env, waitUntil: (work) => this.ctx.waitUntil(work) }), name, plan)
  }

  #instance(name: string, { deploymentId, generation }: Plan): Instance {
    const known = this.#instances.get(name)
    if (known) return known
    const instance = { deploymentId, generation, inFlight: 0, ready: false }
    this.#instances.set(name, instance)
    return instance
  }

  #leastBusy(plan: Plan): string | undefined {
    const load = (name: string) => this.#instances.get(name)?.inFlight ?? 0
    return namesOf(plan).reduce<string | undefined>(
      (best, name) => (best === undefined || load(name) < load(best) ? name : best),
      undefined,
    )
  }

  /** Once the new ones answer, an old one is gone as soon as it has answered what it had. */
  #forgetReplaced(plan: Pick<Plan, 'deploymentId' | 'generation'>): void {
    const entries = Array.from(this.#instances)
    if (!entries.some(([, instance]) => instance.ready && isCurrent(instance, plan))) return
    for (const [name, instance] of entries) {
      if (instance.inFlight === 0 && !isCurrent(instance, plan)) this.#instances.delete(name)
    }
  }
}

const namesOf = ({ deploymentId, generation, spec }: Plan): string[] =>
  Array.from({ length: spec.instances }, (_, i) => `worker:${deploymentId}:${generation}:${i}`)

const isCurrent = (instance: Instance, plan: Pick<Plan, 'deploymentId' | 'generation'>): boolean =>
  instance.deploymentId === plan.deploymentId && instance.generation === plan.generation

/** The instance is busy until the last byte of its answer has gone. */
function untilEnd(response: Response, release: () => void): Response {
  if (response.webSocket || !response.body) {
    release()
    return response
  }
  const size = response.headers.get('content-length')
  const { readable, writable } = size === null ? new IdentityTransformStream() : new FixedLengthStream(Number(size))
  response.body.pipeTo(writable).then(release, release)
  return new Response(readable, response)
}
