import { readdir, readFile } from 'node:fs/promises'
import { extname, join } from 'node:path'
import type { V4MiniflareOptions } from 'miniflare'
import { startBuilder } from './builder.ts'
import { BUILDER, OPTIONS, ROOT } from './bundle.ts'
import { memoryByRole, spawnAs } from './child-process.ts'
import { tickEveryMinute } from './cron.ts'
import { SERVICES_NETWORK, webhookEgress } from './egress.ts'
import { openLogOutput } from './log-output.ts'
import { convertV4MiniflareOptions, Miniflare, Response } from './miniflare.ts'
import { portError } from './ports.ts'
import { isRelevantLine, programBindings, startPrograms } from './programs.ts'
import { builderSettings, checkSettings } from './worker-settings.ts'

const NAME = 'api'
const PAGE = 'page'
/** The signal that runs the cron at once, instead of at the next full minute. */
const TICK_SIGNAL = 'SIGUSR2'

export interface WorkerOptions {
  /** The folder of the bundle that `buildWorker` made. */
  bundle: string
  port: number
  /** Variables and secrets, which override those of wrangler.toml. */
  bindings: Record<string, string>
  /** The folder for Durable Objects. */
  folder: string
  /** Processor time that a process of programs may use without answering. */
  cpuSeconds?: number
  /** Memory limit of such a process; by default an eighth of the memory that the machine or its control group allows, but at most 2 GiB. */
  memoryMiB?: number
  /** Receives the log lines; by default they go to standard output as JSON. */
  onLine?(line: string): void
}

/** Runs the bundle on workerd with its queues, Durable Objects and cron; the builder and programs run in separate processes. */
export async function startWorker(options: WorkerOptions): Promise<{ stop(): Promise<void> }> {
  const { port, bindings, cpuSeconds, memoryMiB, onLine = openLogOutput('json').onLine } = options
  checkSettings(bindings)
  const egress = { WEBHOOK_EGRESS: webhookEgress({ loopback: bindings.WEBHOOK_LOOPBACK === 'on' }) }
  const started: { stop(): Promise<void> }[] = []
  /** Undefined until the Worker runs; then the cron ticks for the first time. */
  let tickNow: (() => void) | undefined
  const stop = async () => {
    for (const one of started.reverse()) await one.stop()
  }
  try {
    const builderOptions = await builderWorker(options)
    const builder = await spawnAs('builder', () => startBuilder({ worker: builderOptions, onLine }))
    started.push(builder)
    const shared = await sharedWorker(options, egress)
    const programs = await spawnAs('programs', () =>
      startPrograms({
        worker: { ...shared },
        api: `127.0.0.1:${port}`,
        onLine,
        cpuSeconds,
        memoryMiB,
        closedPorts: builder.ports,
      }),
    )
    started.push(programs)
    const worker = await spawnAs('api', () =>
      runWorker(options, {
        bindings: { PROGRAMS_KEY: programs.key, BUILDER_KEY: builder.key },
        serviceBindings: {
          ...egress,
          MACHINE: async () => Response.json(await memoryByRole()),
          BUILDER: { external: { address: builder.address, http: {} } },
          ...programBindings(programs),
        },
        onLine,
        // The objects that look for lost work lose their alarms with the process, and only the cron sets them again.
        onRestart: () => tickNow?.(),
      }),
    )
    started.push(worker)
    // Started after the API, which answers most requests without it.
    spawnAs('programs', programs.begin)
    const cron = tickEveryMinute(worker.tick, onLine)
    tickNow = cron.tickNow
    process.on(TICK_SIGNAL, cron.tickNow)
    started.push({
      async stop() {
        process.off(TICK_SIGNAL, cron.tickNow)
        cron.stop()
      },
    })
    return { stop }
  } catch (error) {
    await stop()
    throw error
  }
}

export interface WorkerEnvironment {
  /** Service bindings in addition to those of every Worker. */
  serviceBindings: Record<string, unknown>
  bindings?: Record<string, string>
  onLine(line: string): void
  /** Called when another runtime has replaced a crashed one. */
  onRestart?(): void
  /** Additional Miniflare options for the Worker. */
  worker?: Record<string, unknown>
  /** Additional Workers in the same process. */
  workers?: Record<string, unknown>[]
}

/** Runs only the Worker, without a proxy in front; its cron runs when `tick` is called. */
export async function runWorker(
  options: WorkerOptions,
  { serviceBindings, bindings, onLine, onRestart, worker: more, workers = [] }: WorkerEnvironment,
): Promise<{ tick(scheduledTime?: Date): Promise<void>; stop(): Promise<void> }> {
  const { port, folder } = options
  const shared = await sharedWorker(options, { ASSETS: PAGE, ...serviceBindings })
  const miniflare = new Miniflare({
    ...convertV4MiniflareOptions({
      host: '127.0.0.1',
      port: 0,
      cf: false,
      logRequests: false,
      handleStructuredLogs: ({ message }: { message: string }) => {
        if (isRelevantLine(message)) onLine(message)
      },
      workers: [
        {
          ...shared,
          bindings: { ...shared.bindings, ...bindings },
          unsafeDirectSockets: [{ host: '127.0.0.1', port }],
          ...more,
        },
        await pageWorker(options.bundle),
        ...workers,
      ],
    } as unknown as V4MiniflareOptions),
    resourcePersistencePath: folder,
    ...(onRestart && { unsafeHandleRuntimeRestart: onRestart }),
  })
  try {
    await miniflare.ready
    return {
      async tick(scheduledTime = new Date()) {
        // Fetched for each tick, because a handle is invalid after the runtime has crashed and restarted.
        const worker = await miniflare.getWorker(NAME)
        const { outcome } = await worker.scheduled({ cron: '* * * * *', scheduledTime })
        if (outcome !== 'ok') throw new Error(`the scheduled handler ended with ${outcome}`)
      },
      stop: () => miniflare.dispose(),
    }
  } catch (error) {
    await miniflare.dispose()
    throw portError(error, port, 'api')
  }
}

/** Options that the API and the processes of programs share: everything but their sockets and service bindings. */
async function sharedWorker(
  { bundle, bindings }: WorkerOptions,
  serviceBindings: Record<string, unknown>,
): Promise<WranglerOptions> {
  const configured = await optionsOf(bundle)
  return {
    ...configured,
    // Without this flag, one long task in a batch would delay all later batches (src/background/consumer.ts).
    compatibilityFlags: [...(configured.compatibilityFlags ?? []), 'queue_consumer_no_wait_for_wait_until'],
    // Miniflare puts a Worker with assets behind a router, which would add two hops to every request and message.
    assets: undefined,
    name: NAME,
    rootPath: bundle,
    modulesRoot: '.',
    modules: await modulesOf(bundle),
    bindings: { ...configured.bindings, ...bindings },
    serviceBindings: { SERVICES_EGRESS: SERVICES_NETWORK, ...serviceBindings },
    // Durable Objects keep nothing that must survive the process, and on disk each would leave a database behind.
    unsafeEphemeralDurableObjects: true,
    durableObjects: pinObjects(configured.durableObjects),
  }
}

/** A Worker that serves the files of the documentation. */
async function pageWorker(bundle: string) {
  const { compatibilityDate, assets } = await optionsOf(bundle)
  return {
    name: PAGE,
    rootPath: ROOT,
    modules: [{ type: 'ESModule', path: 'page.js', contents: 'export default {}' }],
    compatibilityDate,
    // wrangler.toml runs the Worker before its assets; this Worker has only assets.
    assets: { ...assets, run_worker_first: false, routerConfig: { has_user_worker: false } },
  }
}

/** The settings of the installation that belong to the builder. */
type BuilderOptions = Pick<WorkerOptions, 'bundle' | 'bindings'>

/** The Miniflare options of the builder. */
export async function builderWorker({ bundle, bindings }: BuilderOptions): Promise<Record<string, unknown>> {
  const folder = join(bundle, BUILDER)
  const configured = await optionsOf(folder)
  return {
    ...configured,
    name: BUILDER,
    rootPath: folder,
    modulesRoot: '.',
    modules: await modulesOf(folder),
    bindings: { ...configured.bindings, ...builderSettings(bindings) },
    serviceBindings: { EGRESS: webhookEgress({ loopback: bindings.IMPORT_LOOPBACK === 'on' }) },
  }
}

const optionsOf = async (bundle: string): Promise<WranglerOptions> =>
  JSON.parse(await readFile(join(bundle, OPTIONS), 'utf8'))

/** The options that wrangler derives from wrangler.toml and that are changed here; wrangler does not type them. */
export interface WranglerOptions {
  name?: string
  rootPath?: string
  modulesRoot?: string
  modules?: unknown[]
  unsafeEphemeralDurableObjects?: boolean
  compatibilityDate?: string
  compatibilityFlags?: string[]
  assets?: Record<string, unknown> | undefined
  bindings?: Record<string, unknown>
  serviceBindings?: Record<string, unknown>
  durableObjects?: Record<string, { className: string }>
}

const PINNED_OBJECTS = ['WebhookSender', 'WebhookSweeper', 'WorkerInstances', 'LogDrainSender', 'MetricsCollector']

/** Pins objects that must not be evicted: in memory, an object evicted after 10 s of idleness loses its alarm and its state. */
function pinObjects(objects: WranglerOptions['durableObjects'] = {}) {
  return Object.fromEntries(
    Object.entries(objects).map(([binding, object]) => [
      binding,
      { ...object, unsafePreventEviction: PINNED_OBJECTS.includes(object.className) },
    ]),
  )
}

const MODULE_TYPES: Record<string, string> = {
  '.js': 'ESModule',
  '.wasm': 'CompiledWasm',
  '.txt': 'Text',
  '.html': 'Text',
  '.sql': 'Text',
  '.bin': 'Data',
}

/** Reads the modules of a bundle in the form that Miniflare takes. */
export async function modulesOf(bundle: string) {
  const files = (await readdir(bundle)).filter((file) => MODULE_TYPES[extname(file)])
  // The entry module comes first; it is the only JavaScript module.
  files.sort((a, b) => Number(extname(b) === '.js') - Number(extname(a) === '.js'))
  return Promise.all(
    files.map(async (path) => {
      const type = MODULE_TYPES[extname(path)]
      const contents = await readFile(join(bundle, path))
      return { type, path, contents: type === 'ESModule' || type === 'Text' ? contents.toString('utf8') : contents }
    }),
  )
}
