import { DurableObject } from 'cloudflare:workers'
import { createCtx } from '../../ctx.ts'
import type { Bindings } from '../../platform/bindings.ts'
import { describeError } from '../../platform/http/log.ts'
import { allowRestart, attemptName } from '../runtime/isolate-starts.ts'
import { cancelIsolateEnd, scheduleIsolateEnd } from '../runtime/isolates.ts'
import { observeEnd } from '../runtime/observe-end.ts'
import { programBindingsOf } from '../runtime/program-bindings.ts'
import { DISPATCH_HEADER, type Dispatch, FAILURE_HEADER, failureResponse } from './instance-protocol.ts'
import { isSameVersion, type Version, Versions } from './plan-versions.ts'
import { LoadError, openInstance } from './worker-isolate.ts'
import type { Plan } from './worker-plan.ts'

type Declared = Version & Pick<Plan, 'spec'>

interface Instance extends Version {
  /** Requests whose response has not been sent completely. */
  inFlight: number
  /** Whether it has started and answered. */
  ready: boolean
  /** Position of its version: new instances start before the switch, so several versions can run at once. */
  order: number
}

/** An instance's name, and that of its isolate, which each attempt to start changes. */
interface Isolate {
  name: string
  isolate: string
}

export interface Tally {
  live: number
  ready: number
  stale: number
}

/**
 * Durable Object, one per worker: spreads the requests over the worker's instances, each an isolate, and counts them.
 * Its state is in memory only, so it knows the instances started since the object itself started. Nothing is stored.
 */
export class WorkerInstances extends DurableObject<Bindings> {
  readonly #versions = new Versions()
  /** Instances by name. */
  readonly #instances = new Map<string, Instance>()
  #stopped = false

  /** Starts all instances of the plan before the first request. Returns why one of them cannot start. */
  async start(plan: Plan): Promise<string | undefined> {
    if (this.#stopped) return 'The worker is being deleted'
    const problems = await Promise.all(namesOf(plan).map((name) => this.#check(name, plan)))
    const problem = problems.find((problem) => problem !== undefined)
    // The worker may have been stopped during the checks.
    if (problem !== undefined || this.#stopped) this.drop(plan)
    return problem
  }

  /** Ends the instances of a plan that was started and will not be served. */
  drop(plan: Plan): void {
    for (const name of namesOf(plan)) this.#release(name, plan)
  }

  /** Handles a caller's request; a header carries its dispatch. */
  override async fetch(request: Request): Promise<Response> {
    const headers = new Headers(request.headers)
    const { plan, ...hostData } = JSON.parse(headers.get(DISPATCH_HEADER) ?? '') as Dispatch
    headers.delete(DISPATCH_HEADER)
    const name = this.#leastBusy(plan)
    if (name === undefined || this.#stopped) return failureResponse('NO_INSTANCE')
    const instance = this.#instance(name, plan)
    const isolate = attemptName(name)
    instance.inFlight += 1
    const release = () => {
      instance.inFlight -= 1
      // The instance was stopped or replaced during the request.
      if (instance.inFlight === 0 && !this.#instances.has(name)) scheduleIsolateEnd(isolate, instance.deploymentId)
    }
    const { url, method, body } = request
    // A signal of its own, because the signal of a request does not abort the isolate's fetch.
    const controller = new AbortController()
    request.signal.addEventListener('abort', () => controller.abort(), { once: true })
    const { signal } = controller
    try {
      const response = await this.#open(isolate, plan).fetch(url, {
        ...{ method, body, headers, signal, redirect: 'manual' },
        cf: hostData as unknown as CfProperties,
      })
      instance.ready = true
      this.#removeReplaced(plan)
      return releaseAtEnd(response, release)
    } catch (error) {
      release()
      if (signal.aborted) return failureResponse('IDLE_TIMEOUT')
      return this.#failure({ name, isolate }, instance, error)
    }
  }

  /** Counts the instances that were started and not replaced; `current` is the version that counts as up to date. */
  tally(current: Declared): Tally {
    this.#removeReplaced(current)
    const order = this.#versions.orderOf(current)
    const live = Array.from(this.#instances.values()).filter((instance) => instance.order <= order)
    const upToDate = live.filter((instance) => isSameVersion(instance, current))
    return {
      live: live.length,
      ready: upToDate.filter(({ ready }) => ready).length,
      stale: live.length - upToDate.length,
    }
  }

  /** Refuses all further requests; requests in flight end by themselves. */
  stop(): void {
    this.#stopped = true
    for (const [name, instance] of Array.from(this.#instances)) this.#release(name, instance)
  }

  async #check(name: string, plan: Plan): Promise<string | undefined> {
    const isolate = attemptName(name)
    try {
      const problem = await this.#open(isolate, plan).check()
      if (problem === undefined) this.#instance(name, plan).ready = true
      return problem
    } catch (error) {
      if (error instanceof LoadError) {
        this.#allowRestart({ name, isolate }, plan, true)
        throw error.cause
      }
      return messageOf(error)
    }
  }

  #open(isolate: string, plan: Plan) {
    const { ref, workerId: programId, image, assets } = plan
    cancelIsolateEnd(isolate)
    const programBindings = programBindingsOf(this.ctx, { ref, programId, assets: assets && { ref, image, ...assets } })
    return openInstance(this.#ctx(), isolate, plan, programBindings)
  }

  /** Removes an instance; its isolate ends once it has answered its requests in flight. */
  #release(name: string, { deploymentId }: Version): void {
    if (!this.#instances.get(name)?.inFlight) scheduleIsolateEnd(attemptName(name), deploymentId)
    this.#instances.delete(name)
  }

  #ctx() {
    return createCtx({ bindings: this.env, waitUntil: (work) => this.ctx.waitUntil(work) })
  }

  #failure(at: Isolate, instance: Instance, error: unknown): Response {
    const message = messageOf(error)
    if (error instanceof LoadError) {
      this.#ctx().log.error('failed', { code: 'worker_load', error: describeError(error.cause) })
      this.#allowRestart(at, instance, true)
      return failureResponse('SERVICE_UNAVAILABLE', 'the worker could not be loaded')
    }
    if (message.startsWith('Failed to start Worker')) {
      this.#allowRestart(at, instance, false)
      return failureResponse('BOOT_ERROR', message)
    }
    const isThrown = error instanceof Error && 'remote' in error
    if (isThrown) return failureResponse('WORKER_ERROR')
    instance.ready = false
    return failureResponse(/exceeded|limit/i.test(message) ? 'WORKER_RESOURCE_LIMIT' : 'WORKER_ERROR', message)
  }

  #allowRestart({ name, isolate }: Isolate, { deploymentId }: Version, isPlatformFault: boolean): void {
    this.#instances.delete(name)
    // The next request cancels this if it goes to the same isolate.
    scheduleIsolateEnd(isolate, deploymentId)
    allowRestart(name, isolate, isPlatformFault)
  }

  #instance(name: string, plan: Plan): Instance {
    const known = this.#instances.get(name)
    if (known) return known
    const { deploymentId, environment } = plan
    const instance = { deploymentId, environment, inFlight: 0, ready: false, order: this.#versions.add(plan) }
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

  /** Removes idle instances of older versions once one of the current version answers. */
  #removeReplaced(current: Declared): void {
    const entries = Array.from(this.#instances)
    const isReplaced = entries.some(([, instance]) => instance.ready && isSameVersion(instance, current))
    if (!isReplaced && current.spec.instances > 0) return
    const order = this.#versions.orderOf(current)
    for (const [name, instance] of entries) {
      if (instance.inFlight > 0 || instance.order >= order) continue
      this.#release(name, instance)
    }
  }
}

const namesOf = ({ deploymentId, environment, spec }: Plan): string[] =>
  Array.from({ length: spec.instances }, (_, i) => `worker:${deploymentId}:${environment}:${i}`)

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

/** Calls `release` when the last byte of the response has been sent, because the instance is busy until then. */
function releaseAtEnd(response: Response, release: () => void): Response {
  const sent = withoutFailure(response)
  if (sent.webSocket || !sent.body) {
    release()
    return sent
  }
  const { copy, ended } = observeEnd(sent)
  void ended.then(release)
  return copy
}

function withoutFailure(response: Response): Response {
  if (!response.headers.has(FAILURE_HEADER)) return response
  const copy = new Response(response.body, response)
  copy.headers.delete(FAILURE_HEADER)
  return copy
}
