import { createConsumer, type Handlers } from '../../src/background/consumer.ts'
import { wakeSender } from '../../src/outbound/webhooks/wake-senders.ts'
import type { Bindings } from '../../src/platform/bindings.ts'
import type { Message } from '../../src/platform/queue/message.ts'
import type { Instance, Reply, World } from './world.ts'

/** Only the handlers of webhooks: the other modules of background.ts do not load in Node. */
const unexpected = {
  run: ({ requestId }: { requestId: string }) => Promise.reject(new Error(`not a hint: ${requestId}`)),
}
const handlers: Handlers = {
  webhook: { run: wakeSender },
  'project-task': unexpected,
  'worker-task': unexpected,
  'private-link': unexpected,
  'git-branch': unexpected,
  heartbeat: unexpected,
}

const BATCH_MAX = 10
const RETRIES_MAX = 10
const REDELIVERY_MS = 30_000

interface Waiting {
  body: unknown
  attempts: number
  queue: string
}

export interface QueueFaults {
  drop: number
  duplicate: number
  /** Probability of minutes instead of milliseconds. */
  late: number
  /** Milliseconds since the start after which the queue works. */
  untilMs: number
}

export interface CallFaults {
  /** Probability that a call ends in an error, and that it is never answered. */
  fail: number
  hang: number
  /** The share of these that reached their object anyway. */
  reached: number
  /** Milliseconds since the start between which calls go wrong. */
  fromMs: number
  untilMs: number
}

/** Makes every direct call fail, so that the queue has to carry the hint. */
export const UNREACHABLE: CallFaults = { fail: 1, hang: 0, reached: 0, fromMs: 0, untilMs: Number.POSITIVE_INFINITY }

/**
 * Makes a queue as Cloudflare describes its own: at least once, in no order; messages that fail too often become dead
 * letters.
 */
export function createQueue(world: World, faults: QueueFaults, bindingsOf: (instance: Instance) => Bindings) {
  const consume = createConsumer(handlers)
  const waiting: Waiting[] = []
  let consumers = 0
  let announced = false
  const seen = { sent: 0, dropped: 0, duplicated: 0, dead: 0 }

  function enqueue(message: Waiting, afterMs: number): void {
    world.at(world.now() + afterMs, 'message arrives', () => {
      waiting.push(message)
      if (announced) return
      announced = true
      world.at(world.now(), 'batch', deliver)
    })
  }

  function sendBatch(instance: Instance, messages: readonly { body: Message }[]): Promise<void> {
    const detail = messages.map(({ body }) => JSON.stringify(body)).join(' ')
    return world.call(instance, 'queue: send', `${messages.length}`, async () => {
      world.note(`   ${detail}`)
      for (const { body } of messages) accept(body)
      return { value: undefined }
    })
  }

  function accept(body: Message): void {
    const { random } = world
    seen.sent += 1
    if (world.sinceStart() >= faults.untilMs) {
      enqueue({ body, attempts: 1, queue: 'webhook-deliveries' }, world.plan.latencyMs(random))
      return
    }
    if (random.chance(faults.drop)) {
      seen.dropped += 1
      return
    }
    const copies = random.chance(faults.duplicate) ? random.whole(2, 5) : 1
    seen.duplicated += copies - 1
    for (let copy = 0; copy < copies; copy++) {
      const afterMs = random.chance(faults.late) ? random.pick([1_000, 30_000, 600_000]) : world.plan.latencyMs(random)
      enqueue({ body, attempts: 1, queue: 'webhook-deliveries' }, afterMs)
    }
  }

  function deliver(): void {
    announced = false
    const byQueue = Map.groupBy(waiting.splice(0), ({ queue }) => queue)
    for (const [queue, messages] of byQueue) {
      for (let from = 0; from < messages.length; from += BATCH_MAX) start(queue, messages.slice(from, from + BATCH_MAX))
    }
  }

  function start(queue: string, messages: Waiting[]): void {
    const instance = world.newInstance(`consumer ${consumers++}`)
    const outcome = new Map<Waiting, { delaySeconds: number } | 'acked'>()
    const redeliver = () => {
      for (const message of messages) again(message, REDELIVERY_MS)
    }
    const settle = () => {
      for (const message of messages) {
        const what = outcome.get(message)
        if (what !== 'acked') again(message, what ? what.delaySeconds * 1000 : REDELIVERY_MS)
      }
    }
    let ended = false
    const end = (finish: () => void) => {
      if (ended) return
      ended = true
      finish()
    }
    instance.atDeath.add(() => end(redeliver))
    const batch = {
      queue,
      messages: messages.map((message, i) => ({
        id: String(i),
        timestamp: new Date(world.now()),
        body: message.body,
        attempts: message.attempts,
        ack: () => outcome.set(message, 'acked'),
        retry: ({ delaySeconds = 0 } = {}) => outcome.set(message, { delaySeconds }),
      })),
    } as unknown as MessageBatch
    const execution = { waitUntil: () => {} } as unknown as ExecutionContext
    consume(batch, bindingsOf(instance), execution)
      .then(() => world.call(instance, 'queue: acknowledge', '', async () => ({ value: end(settle) })))
      .catch(() => end(redeliver))
  }

  function again(message: Waiting, afterMs: number): void {
    if (message.queue.endsWith('-dead')) return
    const dead = message.attempts > RETRIES_MAX
    if (dead) seen.dead += 1
    const queue = dead ? 'webhook-deliveries-dead' : message.queue
    enqueue({ body: message.body, attempts: dead ? 1 : message.attempts + 1, queue }, afterMs)
  }

  return {
    sendBatch,
    seen,
    put: (body: unknown) => enqueue({ body, attempts: 1, queue: 'webhook-deliveries' }, 0),
    purge: () => waiting.splice(0).length,
  }
}

/** Calls a Durable Object from a request: at most once, and the answer may be lost. */
export function callObject(world: World, faults: CallFaults, perform: () => Promise<void>): Reply<void> {
  const { random } = world
  const passed = world.sinceStart()
  if (passed < faults.fromMs || passed >= faults.untilMs) return { later: perform() }
  const fails = random.chance(faults.fail)
  if (!fails && !random.chance(faults.hang)) return { later: perform() }
  if (random.chance(faults.reached)) void perform().catch(() => {})
  return { error: new Error('the object could not be reached'), ...(!fails && { afterMs: Number.POSITIVE_INFINITY }) }
}

/** Makes the storage of a Durable Object and its alarm: at least once, by the clock of its machine. */
export function createStorage(world: World, name: string, onAlarm: () => void) {
  let alarm: number | undefined
  let version = 0

  return {
    get: (instance: Instance) =>
      world.call(instance, `alarm: get`, '', async () => ({ value: alarm === undefined ? null : alarm })),
    set: (instance: Instance, at: number, { periodic } = { periodic: false }) =>
      world.call(instance, `alarm: set`, '', async () => {
        alarm = at
        const current = ++version
        const ring = () => {
          if (version !== current) return
          alarm = undefined
          onAlarm()
        }
        world.at(at - instance.skewMs, `alarm of ${name}`, ring, { periodic })
        return { value: undefined }
      }),
  }
}
export type Storage = ReturnType<typeof createStorage>
