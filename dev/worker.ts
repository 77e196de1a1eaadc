import { execFile } from 'node:child_process'
import { readdir, readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { extname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { convertV4MiniflareOptions, Miniflare, type V4MiniflareOptions } from 'miniflare'
import { unstable_getMiniflareWorkerOptions } from 'wrangler'
import { Config } from '../src/env.ts'
import { startBuilder } from './builder.ts'
import { tickEveryMinute } from './cron.ts'
import { portError } from './ports.ts'
import { errorMessage, StartError } from './start-error.ts'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const CONFIG = 'wrangler.toml'
const BUILDER_CONFIG = 'src/builder/wrangler.toml'
const NAME = 'api'
const PAGE = 'page'
const BUILDER = 'builder'
/** The builder's own settings among those of the installation. */
export const BUILDER_SETTINGS = ['NPM_REGISTRY_URL', 'JSR_REGISTRY_URL', 'IMPORT_LOOPBACK']

export interface BuildOptions {
  /** Where the bundle goes. */
  folder: string
  root?: string
  /** Another entry file than that of wrangler.toml. */
  entry?: string
}

/** Bundles the Worker, and the builder beside it, as a deployment does. */
export async function buildWorker({ folder, root = ROOT, entry }: BuildOptions): Promise<void> {
  await Promise.all([
    bundle(CONFIG, { folder, root, entry }),
    bundle(BUILDER_CONFIG, { folder: join(folder, BUILDER), root }),
  ])
}

async function bundle(config: string, { folder, root = ROOT, entry }: BuildOptions): Promise<void> {
  const wrangler = createRequire(join(root, CONFIG))
    .resolve('wrangler/package.json')
    .replace('package.json', 'bin/wrangler.js')
  const args = [
    wrangler,
    'deploy',
    '--dry-run',
    '--config',
    join(root, config),
    '--outdir',
    folder,
    ...(entry ? [entry] : []),
  ]
  // Everything wrangler writes stays in the folder: not every user who runs services has a home.
  const places = { XDG_CONFIG_HOME: join(folder, 'config'), WRANGLER_WRITE_LOGS: 'false' }
  const env = { ...process.env, ...places, CI: '1', NO_COLOR: '1', WRANGLER_SEND_METRICS: 'false' }
  try {
    await promisify(execFile)(process.execPath, args, { cwd: root, env })
  } catch (error) {
    const output = error instanceof Error && 'stderr' in error ? String(error.stderr).trim() : ''
    throw new StartError(`The Worker does not build: ${output || errorMessage(error)}`)
  }
}

export interface WorkerOptions {
  /** Where `buildWorker` left the bundle. */
  bundle: string
  port: number
  /** Variables and secrets, over those of wrangler.toml. */
  bindings: Record<string, string>
  /** Where Durable Objects are kept. */
  folder: string
  root?: string
}

/** As the Worker itself does at its first request, which would be too late to tell who starts it. */
function checkSettings(bindings: Record<string, string>): void {
  const { error } = Config.safeParse(bindings)
  if (!error) return
  const [{ path, message } = { path: [], message: 'unknown' }] = error.issues
  throw new StartError(`${path.join('.')}=${bindings[String(path[0])] ?? ''} cannot be used: ${message}.`)
}

/** Runs the bundle on workerd, reached without any proxy in between, with its queues, Durable Objects and cron. */
export async function startWorker(options: WorkerOptions): Promise<{ stop(): Promise<void> }> {
  const { bundle, port, bindings, folder, root = ROOT } = options
  checkSettings(bindings)
  process.env.WRANGLER_WRITE_LOGS = 'false'
  const { workerOptions } = unstable_getMiniflareWorkerOptions(join(root, CONFIG))
  const configured = workerOptions as Configured
  const builder = await startBuilder({ worker: await builderWorker(options), onLine: writeLine })
  const miniflare = new Miniflare({
    ...convertV4MiniflareOptions({
      host: '127.0.0.1',
      port: 0,
      cf: false,
      ...(process.env.INSPECT ? { inspectorPort: Number(process.env.INSPECT) } : {}),
      logRequests: false,
      handleStructuredLogs: ({ message }: { message: string }) => {
        if (!message.includes(ISOLATE_ENDED)) writeLine(message)
      },
      workers: [
        {
          ...configured,
          // With files of its own, a Worker is behind a router here, two hops that every request and message would pay for.
          assets: undefined,
          name: NAME,
          rootPath: bundle,
          modulesRoot: '.',
          modules: await modulesOf(bundle),
          bindings: { ...configured.bindings, ...bindings },
          serviceBindings: {
            ...configured.serviceBindings,
            ASSETS: PAGE,
            BUILDER: { external: { address: builder.address, http: {} } },
            SERVICES_EGRESS: SERVICES_NETWORK,
            WEBHOOK_EGRESS: webhookEgress({ loopback: bindings.WEBHOOK_LOOPBACK === 'on' }),
          },
          // Nothing they know must outlive the process; on disk each would leave a database behind.
          unsafeEphemeralDurableObjects: true,
          durableObjects: keepAlarms(configured.durableObjects),
          unsafeDirectSockets: [{ host: '127.0.0.1', port }],
        },
        {
          name: PAGE,
          rootPath: root,
          modules: [{ type: 'ESModule', path: 'page.js', contents: 'export default {}' }],
          compatibilityDate: configured.compatibilityDate,
          assets: configured.assets,
        },
      ],
    } as V4MiniflareOptions),
    resourcePersistencePath: folder,
  })
  try {
    await miniflare.ready
    const worker = await miniflare.getWorker(NAME)
    const cron = tickEveryMinute(async (scheduledTime) => {
      const { outcome } = await worker.scheduled({ cron: '* * * * *', scheduledTime })
      if (outcome !== 'ok') throw new Error(`the scheduled handler ended with ${outcome}`)
    })
    return {
      async stop() {
        cron.stop()
        await miniflare.dispose()
        await builder.stop()
      },
    }
  } catch (error) {
    await miniflare.dispose()
    await builder.stop()
    throw portError(error, port, 'api')
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

/** Straight to the proxy and the bucket: the global fetch takes a detour here. */
const SERVICES_NETWORK = { network: { allow: ['public', 'private'], tlsOptions: { trustBrowserCas: true } } }

/** What workerd's own "public" lets through and must not be reached: `isPublicAddress` knows why. */
const EGRESS_REFUSED = [
  '168.63.129.16/32',
  '192.0.0.0/24',
  '192.0.2.0/24',
  '192.31.196.0/24',
  '192.52.193.0/24',
  '192.88.99.0/24',
  '192.175.48.0/24',
  '198.18.0.0/15',
  '198.51.100.0/24',
  '203.0.113.0/24',
  '224.0.0.0/4',
  '240.0.0.0/4',
  // All of v6 but 2000::/3.
  '::/3',
  '4000::/2',
  '8000::/1',
  '2001::/23',
  '2001:db8::/32',
  '2002::/16',
  '2620:4f:8000::/48',
  '3fff::/20',
]

/**
 * The way out for webhooks: addresses are judged as the connection is made, so a name that answers otherwise the second
 * time gains nothing. The Worker's other requests go to services on private addresses and pass it by.
 */
export function webhookEgress({ loopback }: { loopback: boolean }) {
  return {
    network: {
      // Where both lists match, the longer prefix decides.
      allow: ['public', ...(loopback ? ['127.0.0.1/32', '::1/128'] : [])],
      deny: EGRESS_REFUSED,
      tlsOptions: { trustBrowserCas: true },
    },
  }
}

/** What wrangler makes of wrangler.toml, as far as it is changed here; wrangler itself leaves it untyped. */
interface Configured {
  compatibilityDate?: string
  assets?: Record<string, unknown>
  bindings?: Record<string, unknown>
  serviceBindings?: Record<string, unknown>
  durableObjects?: Record<string, { className: string }>
}

const KEPT_OBJECTS = ['WebhookSender', 'WebhookSweeper', 'WorkerInstances']

/** In memory an object loses its alarm, or what it counts, when it is evicted for idleness, after 10 s; these are not. */
function keepAlarms(objects: Configured['durableObjects'] = {}) {
  return Object.fromEntries(
    Object.entries(objects).map(([binding, object]) => [
      binding,
      { ...object, unsafePreventEviction: KEPT_OBJECTS.includes(object.className) },
    ]),
  )
}

/** What the runtime says of each program that is ended because nobody calls it any more. */
const ISOLATE_ENDED = 'script terminated for unknown reasons'

const lines: string[] = []

/** One write for all lines of a turn: under load each write of its own would cost as much as a query. */
function writeLine(line: string): void {
  if (lines.push(line) > 1) return
  setImmediate(() => process.stdout.write(`${lines.splice(0).join('\n')}\n`))
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
