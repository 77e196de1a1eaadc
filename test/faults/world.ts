import { createAgenda, type Event } from './agenda.ts'
import type { Phase, Plan } from './plan.ts'
import { quiet } from './quiet.ts'
import type { Random } from './random.ts'

/** An isolate, a Durable Object or a request: the unit that dies as a whole. */
export interface Instance {
  name: string
  alive: boolean
  /** The offset of its clock from real time. */
  skewMs: number
  /** Real times at which a fault hit it. */
  faultedAt: number[]
  /** The time until which its messages in both directions are held back. */
  stalledUntil: number
  /** Called at its death. */
  atDeath: Set<() => void>
}

type Settled<T> = { value: T; afterMs?: number } | { error: unknown; afterMs?: number }
/** `later`: the result is still being computed. */
export type Reply<T> = Settled<T> | { later: Promise<T> }

interface Operation {
  instance: Instance
  point: string
  detail: string
  signal: AbortSignal | null | undefined
  perform(): Promise<Reply<unknown>>
  resolve(value: unknown): void
  reject(error: unknown): void
}

interface Injected {
  at: number
  fault: string
  point: string
  instance: string
}

/** A moment that the random names of rows do not change between two runs of a seed. */
const START = Date.UTC(2026, 0, 1)
const STALL_MS = 40_000
const EVENTS_MAX = 60_000

export class Endless extends Error {}

/**
 * A discrete-event simulation around code that really runs. Every call that leaves the code under test is an operation of two
 * events, its execution and its answer; between two events the code runs until it is quiet.
 */
export function createWorld(random: Random, plan: Plan, trace: (line: string) => void) {
  const agenda = createAgenda()
  const fresh: Operation[] = []
  const points = new Map<string, { seen: number; killed: number; failed: number }>()
  const injected: Injected[] = []
  /** Observed violations of what must never happen. */
  const broken: string[] = []
  /** Instances that continue after the platform has started a replacement: the effect of a network partition. */
  const forgotten = new WeakSet<Instance>()
  let now = START
  let steps = 0
  let faults = 0
  let operations = 0
  let slowestMs = 0

  const seconds = () => ((now - START) / 1000).toFixed(3).padStart(9)
  const note = (line: string) => trace(`${seconds()} ${line}`)

  /** Plans an event and returns the function that removes it. */
  function at(time: number, label: string, act: Event['act'], { periodic } = { periodic: false }): () => void {
    return agenda.add({ at: Math.max(time, now), label, act, periodic })
  }

  function newInstance(name: string, skewMs = 0): Instance {
    return { name, alive: true, skewMs, faultedAt: [], stalledUntil: 0, atDeath: new Set() }
  }

  /** Kills an instance: its awaits never return, and its later calls are never executed. */
  function kill(instance: Instance): void {
    instance.alive = false
    instance.faultedAt.push(now)
    for (const end of instance.atDeath) end()
  }

  /** Returns the work's result, or an error if the instance dies before it is done. */
  async function untilDeath<T>(instance: Instance, work: Promise<T>): Promise<T> {
    const death = Promise.withResolvers<never>()
    const end = () => death.reject(new Error(`${instance.name} died`))
    instance.atDeath.add(end)
    try {
      return await Promise.race([work, death.promise])
    } finally {
      instance.atDeath.delete(end)
    }
  }

  /** Makes a call that leaves the code under test at a named point. */
  function call<T>(
    instance: Instance,
    point: string,
    detail: string,
    perform: () => Promise<Reply<T>>,
    signal?: AbortSignal | null,
  ): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      if (!instance.alive) return
      operations += 1
      const settled = { resolve: resolve as (value: unknown) => void, reject }
      fresh.push({ instance, point, detail, signal, perform, ...settled })
      signal?.addEventListener('abort', () => instance.alive && reject(signal.reason), { once: true })
    })
  }

  function latencyMs(): number {
    const ms = plan.latencyMs(random)
    slowestMs = Math.max(slowestMs, ms)
    return ms
  }

  function schedule(operation: Operation): void {
    const { point, instance } = operation
    at(now + latencyMs(), `${point} (${instance.name})`, () => execute(operation))
  }

  function faultOf(operation: Operation, phase: Phase) {
    const { instance, point } = operation
    const name = `${point} ${phase}`
    const seen = points.get(name) ?? { seen: 0, killed: 0, failed: 0 }
    points.set(name, seen)
    seen.seen += 1
    const fault = plan.fault({ point, phase, instance: instance.name, at: now - START })
    if (!fault) return undefined
    note(`!! ${fault} ${phase} ${point} (${instance.name})`)
    faults += 1
    injected.push({ at: now, fault, point: name, instance: instance.name })
    instance.faultedAt.push(now)
    if (fault === 'kill') seen.killed += 1
    if (fault === 'fail') seen.failed += 1
    return fault
  }

  async function execute(operation: Operation): Promise<void> {
    const { instance, point, detail, signal } = operation
    if (signal?.aborted) return
    if (isStalled(instance, () => execute(operation))) return
    // A message that a dead instance had sent may still arrive.
    if (instance.alive ? injectFault(operation, 'before', () => execute(operation)) : random.chance(0.5)) return
    note(`-> ${point} ${detail} (${instance.name})`)
    const reply = await operation.perform()
    if ('later' in reply) {
      void reply.later.then(
        (value) => sendBack(operation, { value }),
        (error) => sendBack(operation, { error }),
      )
    } else sendBack(operation, reply)
  }

  function sendBack(operation: Operation, reply: Settled<unknown>): void {
    if (reply.afterMs === Number.POSITIVE_INFINITY) return
    at(now + (reply.afterMs ?? latencyMs()), `answer of ${operation.point}`, () => answer(operation, reply))
  }

  function answer(operation: Operation, reply: Settled<unknown>): void {
    const { instance } = operation
    if (isStalled(instance, () => answer(operation, reply))) return
    if (!instance.alive || injectFault(operation, 'after', () => answer(operation, reply))) return
    if ('error' in reply) operation.reject(reply.error)
    else operation.resolve(reply.value)
  }

  /** Injects the planned fault, if there is one. Returns whether the event must not happen now. */
  function injectFault(operation: Operation, phase: Phase, again: Event['act']): boolean {
    const { instance, point } = operation
    const fault = faultOf(operation, phase)
    if (fault === 'kill') kill(instance)
    if (fault === 'fail') operation.reject(new Error(`injected: ${point} failed, ${phase} it was done`))
    if (fault === 'delay') at(now + plan.delayMs(random), `late ${point}`, again)
    if (fault === 'forget' || fault === 'stall') forgotten.add(instance)
    if (fault === 'stall') instance.stalledUntil = now + STALL_MS
    return isStalled(instance, again) || (fault !== undefined && fault !== 'forget')
  }

  function isStalled({ stalledUntil, alive }: Instance, again: Event['act']): boolean {
    if (!alive || stalledUntil <= now) return false
    at(stalledUntil, 'after the stall', again)
    return true
  }

  /** Gives new operations their place in time in an order that does not depend on which thread was done first. */
  function place(): void {
    const keyed = fresh.splice(0).map((operation) => {
      const { instance, point, detail } = operation
      return { operation, key: `${instance.name} ${point} ${detail}` }
    })
    keyed.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0))
    for (const { operation } of keyed) schedule(operation)
  }

  /** Runs until `until` returns true, which is checked whenever only periodic events are left. */
  async function run(until: () => Promise<boolean>, eventsMax = EVENTS_MAX): Promise<void> {
    const stepsMax = steps + eventsMax
    for (;;) {
      await quiet()
      place()
      if (agenda.isIdle() && (await until())) return
      const event = agenda.takeNext()
      if (!event) return
      now = Math.max(now, event.at)
      await event.act()
      if (++steps > stepsMax) throw new Endless(`no rest after ${eventsMax} events`)
    }
  }

  /** Returns a timeout, of an instance if there is one: its timers die with it. */
  function timeout(ms: number, instance?: Instance): { signal: AbortSignal; clear(): void } {
    const controller = new AbortController()
    const end = () => {
      if (instance?.alive !== false) controller.abort(new DOMException('the time is over', 'TimeoutError'))
    }
    return { signal: controller.signal, clear: at(now + ms, 'timeout', end, { periodic: true }) }
  }

  return {
    random,
    plan,
    at,
    call,
    kill,
    untilDeath,
    run,
    timeout,
    note,
    newInstance,
    now: () => now,
    clockOf: (instance: Instance) => now + instance.skewMs,
    sinceStart: () => now - START,
    isServing: (instance: Instance) => instance.alive && !forgotten.has(instance),
    broken: (what: string) => void broken.push(what),
    seenBroken: broken,
    points,
    injected,
    slowestMs: () => slowestMs,
    counts: () => ({ operations, steps, faults }),
    /** Clears the records that were judged already. */
    forget() {
      injected.length = 0
      broken.length = 0
    },
  }
}
export type World = ReturnType<typeof createWorld>
