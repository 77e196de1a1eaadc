import { Config } from '../../src/config.ts'
import type { SystemCtx } from '../../src/ctx.ts'
import type { Ports } from '../../src/outbound/webhooks/attempt.ts'
import { createSender, type Sender } from '../../src/outbound/webhooks/delivery-loop.ts'
import { createAdmission } from '../../src/outbound/webhooks/delivery-permits.ts'
import { wakeOverdue } from '../../src/outbound/webhooks/sweep.ts'
import type { Bindings } from '../../src/platform/bindings.ts'
import type { Logger } from '../../src/platform/http/log.ts'
import type { Resolution } from '../../src/platform/net/dns.ts'
import { connect, type Database, databaseNow } from './database.ts'
import { type CallFaults, callObject, createQueue, createStorage, type QueueFaults, type Storage } from './platform.ts'
import { createReceivers, type Held, type KnownEndpoint } from './receivers.ts'
import type { Instance, World } from './world.ts'

const SETTINGS = {
  BASE_URL: 'https://api.pilothouse.dev',
  DATABASE_URL: 'postgres://simulated:none@127.0.0.1/simulated',
  ENGINE: 'host',
  HOST_URL: 'http://127.0.0.1:2',
  HOST_KEY: 'none',
  DATABASE_HOST: '127.0.0.1',
  DATABASE_PORT: '5432',
  NEON_PROXY: 'http://127.0.0.1:1',
  ENCRYPTION_KEY: 'k1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=',
  S3_ENDPOINT: 'http://127.0.0.1:9000',
  S3_REGION: 'auto',
  S3_BUCKET: 'none',
  S3_ACCESS_KEY_ID: 'none',
  S3_SECRET_ACCESS_KEY: 'none',
}

const SWEEP_MS = 10_000
const CRON_MS = 60_000

export interface Options {
  world: World
  database: Database
  endpoints: Map<string, KnownEndpoint>
  queueFaults: QueueFaults
  /** Faults of the calls by which requests wake senders. */
  callFaults: CallFaults
  /** Returns the skew of a new instance's clock. */
  skewMs(): number
  resolve(host: string): Resolution
  settings?: Record<string, string>
  /** The number of deliveries that may be under way at a time. */
  admitted?: number
}

interface Present {
  instance: Instance
  sender: Sender
}

/** Makes the Worker's parts around one database, each in instances that may die at any call. */
export function createInstallation(options: Options) {
  const { world, database, endpoints, queueFaults, callFaults, skewMs, resolve, settings, admitted } = options
  const variables = { ...SETTINGS, ...settings }
  const config = Config.parse(variables)
  const receivers = createReceivers(world, endpoints)
  const admission = createAdmission(world.now, admitted)
  const claims = { rows: 0, statements: 0 }
  const logged: Record<string, number> = {}
  const queue = createQueue(world, queueFaults, (instance) => contextOf(instance).bindings)
  const objects = new Map<string, ReturnType<typeof createSenderObject>>()
  const held = new WeakMap<Instance, Map<string, Held>>()
  const labels = () => new Map([...endpoints.values()].map(({ id, label }) => [id, label]))
  let started = 0

  const count = (event: string) => {
    logged[event] = (logged[event] ?? 0) + 1
  }
  const log: Logger = {
    info: count,
    error: (event, fields) => {
      count(event)
      world.note(`   log ${event} ${JSON.stringify(fields).slice(0, 300)}`)
    },
  }

  const newInstance = (name: string) => world.newInstance(`${name} #${started++}`, skewMs())

  function contextOf(instance: Instance): SystemCtx {
    const bindings = {
      ...variables,
      WEBHOOK_DELIVERIES: { sendBatch: (batch: []) => queue.sendBatch(instance, batch) },
      WEBHOOK_SENDERS: {
        idFromName: (name: string) => name,
        get: (endpointId: string) => ({ wake: () => wake(instance, endpointId) }),
      },
    } as unknown as Bindings
    return {
      config,
      bindings,
      actor: { kind: 'system' },
      requestId: instance.name,
      db: connect(world, database, instance, ({ point, rows }) => {
        if (point === 'claim') keepClaims(instance, rows)
        if (point === 'disable' && rows.length > 0) keepDisabled(instance)
      }),
      engine: {} as SystemCtx['engine'],
      now: () => new Date(world.clockOf(instance)),
      databaseNow,
      waitUntil: (work) => void work.catch(() => {}),
      log,
    }
  }

  function keepClaims(instance: Instance, rows: Record<string, unknown>[]): void {
    const rowsHeld = held.get(instance) ?? new Map<string, Held>()
    held.set(instance, rowsHeld)
    claims.statements += 1
    claims.rows += rows.length
    for (const { id, messageId } of rows) {
      rowsHeld.set(messageId as string, { deliveryId: id as string, claimedAt: world.now() })
    }
  }

  function keepDisabled({ name }: Instance): void {
    const states = endpoints.get(name.split(' ')[1] ?? '')?.states
    const last = states?.at(-1)
    if (last?.enabled) states?.push({ ...last, at: world.now(), enabled: false })
  }

  function portsOf(instance: Instance): Ports {
    // After the answer of a resolver, the attempt goes straight on to its request, with no other event between.
    let startedAt = 0
    return {
      post: (url, init) => {
        const messageId = new Headers(init.headers).get('webhook-id') ?? ''
        const row = held.get(instance)?.get(messageId)
        if (row) row.startedAt ??= startedAt
        return receivers.post(instance, url, init, row)
      },
      timeout: (ms) => world.timeout(ms, instance),
      rules: {
        ownHosts: ['api.pilothouse.dev'],
        allowLoopback: false,
        resolver: {
          resolve: async (host) => {
            const askedAt = world.now()
            const resolution = await world.call(instance, 'resolve', host, async () => ({ value: resolve(host) }))
            startedAt = askedAt
            return resolution
          },
        },
      },
    }
  }

  /**
   * Makes one sender for each endpoint, as the platform promises, except for a moment in which it takes a live one
   * for dead.
   */
  function createSenderObject(endpointId: string) {
    const name = `sender ${labels().get(endpointId)}`
    const storage: Storage = createStorage(world, name, () => void current().sender.wake({ plan: true }))
    let present: Present | undefined

    function current(): Present {
      if (present && world.isServing(present.instance)) return present
      const instance = newInstance(name)
      const wakeAt = async (at: number) => {
        const standing = await storage.get(instance)
        if (standing === null || at < standing) await storage.set(instance, at)
      }
      const sender = createSender(contextOf(instance), { endpointId, ports: portsOf(instance), admission, wakeAt })
      present = { instance, sender }
      return present
    }

    return {
      /** The caller of an object that dies gets an error. */
      async wake(): Promise<void> {
        const { instance, sender } = current()
        const kept = world.call(instance, 'object: keep', '', async () => ({ value: undefined }))
        await world.untilDeath(instance, kept)
        void sender.wake()
      },
      current,
    }
  }

  function objectOf(endpointId: string) {
    const known = objects.get(endpointId) ?? createSenderObject(endpointId)
    objects.set(endpointId, known)
    return known
  }

  /** Wakes a sender by a request: these calls have faults of their own, beside those of the plan. */
  function wake(from: Instance, endpointId: string): Promise<void> {
    const [caller] = from.name.split(' ')
    const { wake: perform } = objectOf(endpointId)
    return world.call(from, `wake: by ${caller}`, labels().get(endpointId) ?? '', async () =>
      caller === 'request' ? callObject(world, callFaults, perform) : { later: perform() },
    )
  }

  const sweeper = createStorage(world, 'sweeper', sweep)

  function sweep(): void {
    const instance = newInstance('sweeper')
    const again = () => sweeper.set(instance, world.clockOf(instance) + SWEEP_MS, { periodic: true })
    wakeOverdue(contextOf(instance))
      .catch(() => {})
      .then(again)
      .catch(() => {})
  }

  async function arm(instance: Instance): Promise<void> {
    if ((await sweeper.get(instance)) === null)
      await sweeper.set(instance, world.clockOf(instance) + SWEEP_MS, { periodic: true })
  }

  function cron(): void {
    world.at(world.now() + CRON_MS, 'cron', cron, { periodic: true })
    const instance = newInstance('sweeper of the cron')
    void wakeOverdue(contextOf(instance)).catch(() => {})
    void arm(instance).catch(() => {})
  }

  /** Kills the senders, as an update of the runtime does. */
  function killSenders(): void {
    for (const object of objects.values()) {
      const { instance } = object.current()
      world.note(`!! kill ${instance.name}`)
      world.kill(instance)
    }
  }

  return {
    killSenders,
    sweep,
    contextOf,
    newInstance,
    objectOf,
    queue,
    ledger: receivers.ledger,
    claims,
    logged,
    start: () => world.at(world.now(), 'cron', cron),
  }
}
export type Installation = ReturnType<typeof createInstallation>
