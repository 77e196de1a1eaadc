import { readdir, readFile } from 'node:fs/promises'
import { extname, join } from 'node:path'
import { convertV4MiniflareOptions, Miniflare, Response, type V4MiniflareOptions } from 'miniflare'
import { unstable_getMiniflareWorkerOptions } from 'wrangler'
import { Config } from '../src/config.ts'
import { startBuilder } from './builder.ts'
import { BUILDER, BUILDER_CONFIG, CONFIG, ROOT } from './bundle.ts'
import { memoryByRole, spawnAs } from './child-process.ts'
import { tickEveryMinute } from './cron.ts'
import { SERVICES_NETWORK, webhookEgress } from './egress.ts'
import { openLogOutput } from './log-output.ts'
import { portError } from './ports.ts'
import { isNews, programBindings, startPrograms } from './programs.ts'
import { StartError } from './start-error.ts'

const NAME = 'api'
const PAGE = 'page'
/** The builder's own settings among those of the installation. */
export const BUILDER_SETTINGS = ['NPM_REGISTRY_URL', 'JSR_REGISTRY_URL', 'IMPORT_LOOPBACK']

export interface WorkerOptions {
  /** Where `buildWorker` left the bundle. */
  bundle: string
  port: number
  /** Variables and secrets, over those of wrangler.toml. */
  bindings: Record<string, string>
  /** Where Durable Objects are kept. */
  folder: string
  root?: string
  /** Processor time for which a process of programs may answer nothing. */
  cpuSeconds?: number
  /** What such a process may have in memory; an eighth of the machine's where it is left out, 2 GiB at most. */
  memoryMiB?: number
  /** Takes the log; on standard output, as JSON, where it is left out. */
  onLine?(line: string): void
}

/** Names of settings whose value is not for a terminal or a log. */
const SECRET = /KEY|TOKEN|SECRET|DATABASE_URL/

/** As the Worker itself does at its first request, which would be too late to tell who starts it. */
function checkSettings(bindings: Record<string, string>): void {
  const { error } = Config.safeParse(bindings)
  if (!error) return
  const [{ path, message } = { path: [], message: 'unknown' }] = error.issues
  const name = path.join('.')
  const value = SECRET.test(name) ? '' : `=${bindings[String(path[0])] ?? ''}`
  throw new StartError(`${name}${value} cannot be used: ${message}.`)
}

/** Runs the bundle on workerd with its queues, Durable Objects and cron; the builder and programs in processes of their own. */
export async function startWorker(options: WorkerOptions): Promise<{ stop(): Promise<void> }> {
  const { port, bindings, cpuSeconds, memoryMiB, onLine = openLogOutput('json').onLine } = options
  checkSettings(bindings)
  const egress = { WEBHOOK_EGRESS: webhookEgress({ loopback: bindings.WEBHOOK_LOOPBACK === 'on' }) }
  const started: { stop(): Promise<void> }[] = []
  const stop = async () => {
    for (const one of started.reverse()) await one.stop()
  }
  try {
    const ofBuilder = await builderWorker(options)
    const builder = await spawnAs('builder', () => startBuilder({ worker: ofBuilder, onLine }))
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
      }),
    )
    started.push(worker)
    const cron = tickEveryMinute(worker.tick, onLine)
    started.push({ stop: async () => cron.stop() })
    return { stop }
  } catch (error) {
    await stop()
    throw error
  }
}

export interface Surroundings {
  /** Beside those that every Worker has. */
  serviceBindings: Record<string, unknown>
  bindings?: Record<string, string>
  onLine(line: string): void
  /** More options of Miniflare for the Worker. */
  worker?: Record<string, unknown>
  /** More Workers beside it. */
  workers?: Record<string, unknown>[]
}

/** The Worker alone, reached without any proxy in between; its cron ticks when told. */
export async function runWorker(
  options: WorkerOptions,
  { serviceBindings, bindings, onLine, worker: more, workers = [] }: Surroundings,
): Promise<{ tick(scheduledTime?: Date): Promise<void>; stop(): Promise<void> }> {
  const { port, folder, root = ROOT } = options
  const shared = await sharedWorker(options, { ASSETS: PAGE, ...serviceBindings })
  const miniflare = new Miniflare({
    ...convertV4MiniflareOptions({
      host: '127.0.0.1',
      port: 0,
      cf: false,
      logRequests: false,
      handleStructuredLogs: ({ message }: { message: string }) => {
        if (isNews(message)) onLine(message)
      },
      workers: [
        {
          ...shared,
          bindings: { ...shared.bindings, ...bindings },
          unsafeDirectSockets: [{ host: '127.0.0.1', port }],
          ...more,
        },
        pageWorker(root),
        ...workers,
      ],
    } as unknown as V4MiniflareOptions),
    resourcePersistencePath: folder,
  })
  try {
    await miniflare.ready
    return {
      async tick(scheduledTime = new Date()) {
        // Each time anew: one that was had before is of no use once the runtime crashed and was started again.
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

/** What the API and the process that runs programs have in common: all but who reaches them, and whom they reach. */
async function sharedWorker(
  { bundle, bindings, root = ROOT }: WorkerOptions,
  serviceBindings: Record<string, unknown>,
): Promise<Configured> {
  process.env.WRANGLER_WRITE_LOGS = 'false'
  const { workerOptions } = unstable_getMiniflareWorkerOptions(join(root, CONFIG))
  const configured = workerOptions as Configured
  return {
    ...configured,
    // One long task in a batch would else hold up all that comes after it (src/background/consumer.ts).
    compatibilityFlags: [...(configured.compatibilityFlags ?? []), 'queue_consumer_no_wait_for_wait_until'],
    // With files of its own, a Worker is behind a router here, two hops that every request and message would pay for.
    assets: undefined,
    name: NAME,
    rootPath: bundle,
    modulesRoot: '.',
    modules: await modulesOf(bundle),
    bindings: { ...configured.bindings, ...bindings },
    serviceBindings: { SERVICES_EGRESS: SERVICES_NETWORK, ...serviceBindings },
    // Nothing they know must outlive the process; on disk each would leave a database behind.
    unsafeEphemeralDurableObjects: true,
    durableObjects: keepAlarms(configured.durableObjects),
  }
}

/** The files of the reference page. */
function pageWorker(root: string) {
  const { workerOptions } = unstable_getMiniflareWorkerOptions(join(root, CONFIG))
  const { compatibilityDate, assets } = workerOptions as Configured
  return {
    name: PAGE,
    rootPath: root,
    modules: [{ type: 'ESModule', path: 'page.js', contents: 'export default {}' }],
    compatibilityDate,
    // The order of wrangler.toml, the Worker first, is that of the Worker, which this one does not stand for.
    assets: { ...assets, run_worker_first: false, routerConfig: { has_user_worker: false } },
  }
}

type BuilderOptions = Pick<WorkerOptions, 'bundle' | 'bindings' | 'root'>

/** The builder as Miniflare takes it. */
export async function builderWorker({
  bundle,
  bindings,
  root = ROOT,
}: BuilderOptions): Promise<Record<string, unknown>> {
  const { workerOptions } = unstable_getMiniflareWorkerOptions(join(root, BUILDER_CONFIG))
  const configured = workerOptions as Configured
  const folder = join(bundle, BUILDER)
  const settings = BUILDER_SETTINGS.flatMap((name) => (bindings[name] ? [[name, bindings[name]]] : []))
  return {
    ...configured,
    name: BUILDER,
    rootPath: folder,
    modulesRoot: '.',
    modules: await modulesOf(folder),
    bindings: { ...configured.bindings, ...Object.fromEntries(settings) },
    serviceBindings: { EGRESS: webhookEgress({ loopback: bindings.IMPORT_LOOPBACK === 'on' }) },
  }
}

/** What wrangler makes of wrangler.toml, as far as it is changed here; wrangler itself leaves it untyped. */
export interface Configured {
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

const KEPT_OBJECTS = ['WebhookSender', 'WebhookSweeper', 'WorkerInstances', 'LogDrainSender', 'MetricsCollector']

/** In memory an object loses its alarm, or what it counts, when it is evicted for idleness, after 10 s, or what it is about; these are not. */
function keepAlarms(objects: Configured['durableObjects'] = {}) {
  return Object.fromEntries(
    Object.entries(objects).map(([binding, object]) => [
      binding,
      { ...object, unsafePreventEviction: KEPT_OBJECTS.includes(object.className) },
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

export async function modulesOf(bundle: string) {
  const files = (await readdir(bundle)).filter((file) => MODULE_TYPES[extname(file)])
  // The entry module, the only one of its kind, comes first.
  files.sort((a, b) => Number(extname(b) === '.js') - Number(extname(a) === '.js'))
  return Promise.all(
    files.map(async (path) => {
      const type = MODULE_TYPES[extname(path)]
      const contents = await readFile(join(bundle, path))
      return { type, path, contents: type === 'ESModule' || type === 'Text' ? contents.toString('utf8') : contents }
    }),
  )
}
