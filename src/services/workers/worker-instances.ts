import { DurableObject } from 'cloudflare:workers'
import { createCtx } from '../../ctx.ts'
import type { Bindings } from '../../platform/bindings.ts'
import { describeError } from '../../platform/http/log.ts'
import { cancelIsolateEnd, scheduleIsolateEnd } from '../runtime/isolates.ts'
import type { ProgramBindings } from '../runtime/program-code.ts'
import type { OutboundProps } from '../runtime/program-egress.ts'
import type { Assets } from './assets/serve.ts'
import { DISPATCH_HEADER, type Dispatch, FAILURE_HEADER, failureResponse } from './instance-protocol.ts'
import { isOf, type Version, Versions } from './plan-versions.ts'
import { LoadFailed, openInstance } from './worker-isolate.ts'
import type { Plan } from './worker-plan.ts'

type Declared = Version & Pick<Plan, 'spec'>

interface Instance extends Version {
  /** Requests that it has not answered to their end. */
  inFlight: number
  /** It has started, and answers. */
  ready: boolean
  /** The place of its version: what is to replace another starts before the switch. */
  order: number
}

export interface Tally {
  live: number
  ready: number
  stale: number
}

/** What index.ts exports for programs to be connected to. */
interface Exports {
  FunctionOutbound(options: { props: OutboundProps }): Fetcher
  FunctionConsole(options: { props: { ref: string; programId: string } }): Fetcher
  WorkerAssets(options: { props: Assets }): Fetcher
}

const RESTARTED_AFTER_MS = 1_000

/**
 * One object per worker: spreads its requests over its instances, each an isolate, and counts them. In memory alone: it knows of those
 * that it has started since it began itself.
 */
export class WorkerInstances extends DurableObject<Bindings> {
  readonly #versions = new Versions()
  /** By their names. */
  readonly #instances = new Map<string, Instance>()
  /** The runtime goes on giving the failure of an isolate that did not start; another attempt needs another name. */
  readonly #attempts = new Map<string, { number: number; at: number }>()
  #stopped = false

  /** Starts what the plan declares before the first request comes. Returns why one cannot start. */
  async start(plan: Plan): Promise<string | undefined> {
    if (this.#stopped) return 'The worker is being deleted'
    const problems = await Promise.all(namesOf(plan).map((name) => this.#check(name, plan)))
    const problem = problems.find((problem) => problem !== undefined)
    // It may have been stopped meanwhile.
    if (problem !== undefined || this.#stopped) this.drop(plan)
    return problem
  }

  /** Of what was started and is not to be served after all. */
  drop(plan: Plan): void {
    for (const name of namesOf(plan)) this.#leave(name, plan)
  }

  /** The request of a caller, with its dispatch beside it. */
  override async fetch(request: Request): Promise<Response> {
    const headers = new Headers(request.headers)
    const { plan, invocation, address, chainToken, scheduled } = JSON.parse(
      headers.get(DISPATCH_HEADER) ?? '',
    ) as Dispatch
    headers.delete(DISPATCH_HEADER)
    const name = this.#leastBusy(plan)
    if (name === undefined || this.#stopped) return failureResponse('NO_INSTANCE')
    const instance = this.#instance(name, plan)
    const isolate = this.#isolateOf(name)
    instance.inFlight += 1
    const release = () => {
      instance.inFlight -= 1
      // Stopped or replaced meanwhile.
      if (instance.inFlight === 0 && !this.#instances.has(name)) scheduleIsolateEnd(isolate, instance.deploymentId)
    }
    const { url, method, body } = request
    // The signal of a request ends nothing itself.
    const leaving = new AbortController()
    request.signal.addEventListener('abort', () => leaving.abort(), { once: true })
    const { signal } = leaving
    const cf = { invocation, address, chainToken, scheduled } as unknown as CfProperties
    try {
      const response = await this.#open(name, plan).fetch(url, {
        method,
        body,
        headers,
        signal,
        redirect: 'manual',
        cf,
      })
      instance.ready = true
      this.#forgetReplaced(plan)
      return untilEnd(response, release)
    } catch (error) {
      release()
      if (signal.aborted) return failureResponse('IDLE_TIMEOUT')
      return this.#failed(name, instance, error)
    }
  }

  /** Of what was started and has not been replaced since; `current` says what is up to date. */
  tally(current: Declared): Tally {
    this.#forgetReplaced(current)
    const order = this.#versions.orderOf(current)
    const live = Array.from(this.#instances.values()).filter((instance) => instance.order <= order)
    const upToDate = live.filter((instance) => isOf(instance, current))
    return {
      live: live.length,
      ready: upToDate.filter(({ ready }) => ready).length,
      stale: live.length - upToDate.length,
    }
  }

  /** Takes no request any more; those under way end by themselves. */
  stop(): void {
    this.#stopped = true
    for (const [name, instance] of Array.from(this.#instances)) this.#leave(name, instance)
  }

  async #check(name: string, plan: Plan): Promise<string | undefined> {
    try {
      const problem = await this.#open(name, plan).check()
      if (problem === undefined) this.#instance(name, plan).ready = true
      return problem
    } catch (error) {
      if (error instanceof LoadFailed) {
        this.#allowRestart(name, { isOurFault: true })
        throw error.cause
      }
      return messageOf(error)
    }
  }

  #open(name: string, plan: Plan) {
    const ctx = this.#ctx()
    const { FunctionOutbound, FunctionConsole, WorkerAssets } = this.ctx.exports as unknown as Exports
    const { ref, image, assets } = plan
    const props = { ref: plan.ref, programId: plan.workerId }
    const programBindings: ProgramBindings = {
      outbound: (databaseUrl) => FunctionOutbound({ props: { ...props, databaseUrl } }),
      console: FunctionConsole({ props }),
      assets: assets && WorkerAssets({ props: { ref, image, ...assets } }),
    }
    const isolate = this.#isolateOf(name)
    cancelIsolateEnd(isolate)
    return openInstance(ctx, isolate, plan, programBindings)
  }

  #isolateOf(name: string): string {
    const attempt = this.#attempts.get(name)
    return attempt ? `${name}:${attempt.number}` : name
  }

  /** Its isolate goes as soon as it has answered what it had. */
  #leave(name: string, { deploymentId }: Version): void {
    if (!this.#instances.get(name)?.inFlight) scheduleIsolateEnd(this.#isolateOf(name), deploymentId)
    this.#instances.delete(name)
    this.#attempts.delete(name)
  }

  #ctx() {
    return createCtx({ bindings: this.env, waitUntil: (work) => this.ctx.waitUntil(work) })
  }

  #failed(name: string, instance: Instance, error: unknown): Response {
    const message = messageOf(error)
    if (error instanceof LoadFailed) {
      this.#ctx().log.error('failed', { code: 'worker_load', error: describeError(error.cause) })
      this.#allowRestart(name, { isOurFault: true })
      return failureResponse('SERVICE_UNAVAILABLE', 'the worker could not be loaded')
    }
    if (message.startsWith('Failed to start Worker')) {
      this.#allowRestart(name, { isOurFault: false })
      return failureResponse('BOOT_ERROR', message)
    }
    const isThrown = error instanceof Error && 'remote' in error
    if (isThrown) return failureResponse('WORKER_ERROR')
    instance.ready = false
    return failureResponse(/exceeded|limit/i.test(message) ? 'WORKER_RESOURCE_LIMIT' : 'WORKER_ERROR', message)
  }

  #allowRestart(name: string, { isOurFault }: { isOurFault: boolean }): void {
    this.#instances.delete(name)
    const now = Date.now()
    const { number, at } = this.#attempts.get(name) ?? { number: 0, at: 0 }
    // What cannot start would otherwise be loaded as often as somebody calls it.
    if (isOurFault || now - at >= RESTARTED_AFTER_MS) this.#attempts.set(name, { number: number + 1, at: now })
  }

  #instance(name: string, plan: Plan): Instance {
    const known = this.#instances.get(name)
    if (known) return known
    const { deploymentId, environment } = plan
    const instance = { deploymentId, environment, inFlight: 0, ready: false, order: this.#versions.see(plan) }
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
  #forgetReplaced(current: Declared): void {
    const entries = Array.from(this.#instances)
    const isReplaced = entries.some(([, instance]) => instance.ready && isOf(instance, current))
    if (!isReplaced && current.spec.instances > 0) return
    const order = this.#versions.orderOf(current)
    for (const [name, instance] of entries) {
      if (instance.inFlight > 0 || instance.order >= order) continue
      this.#leave(name, instance)
    }
  }
}

const namesOf = ({ deploymentId, environment, spec }: Plan): string[] =>
  Array.from({ length: spec.instances }, (_, i) => `worker:${deploymentId}:${environment}:${i}`)

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

/** The instance is busy until the last byte of its answer has gone. */
function untilEnd(response: Response, release: () => void): Response {
  const shown = withoutFailure(response)
  if (shown.webSocket || !shown.body) {
    release()
    return shown
  }
  // What is encoded has another length here than on its way.
  const size = shown.headers.has('content-encoding') ? null : shown.headers.get('content-length')
  const { readable, writable } = size === null ? new IdentityTransformStream() : new FixedLengthStream(Number(size))
  shown.body.pipeTo(writable).then(release, release)
  return new Response(readable, shown)
}

function withoutFailure(response: Response): Response {
  if (!response.headers.has(FAILURE_HEADER)) return response
  const shown = new Response(response.body, response)
  shown.headers.delete(FAILURE_HEADER)
  return shown
}
