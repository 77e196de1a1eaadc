import { spawn } from 'node:child_process'
import { mkdtempSync, renameSync, symlinkSync } from 'node:fs'
import { createServer, type Server as HttpServer, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setImmediate } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type { TestProject } from 'vitest/node'
import { buildWorker } from '../dev/bundle.ts'
import { type Doh, startDoh, type Zone } from './outbound/webhooks/doh.ts'
import { uncovered } from './support/coverage.ts'
import { type GithubServer, startGithubServer } from './support/github-server/server.ts'
import { copyInstallation } from './support/installations.ts'
import { startServicesApart } from './support/services.ts'
import { type Server, serveWorker } from './support/worker.ts'

declare module 'vitest' {
  interface ProvidedContext {
    baseUrl: string
    /** The folder of an installation that was started once. */
    begun: string
    /** The folder of the Worker as it is deployed. */
    bundle: string
    controlUrl: string
    /** Address of the control plane's instance: its superuser, over its socket. */
    adminUrl: string
    host: { url: string; key: string; run: string }
    hooksUrl: string
    metricsToken: string
    databaseHost: string
    databasePort: number
    encryptionKey: string
    /** The settings of the GitHub App, whose GitHub server runs on this machine. */
    github: GithubServer['settings']
    s3: { endpoint: string; openPort: string; bucket: string; accessKeyId: string; secretAccessKey: string }
  }
}

/** Moves the templates of an installation to a folder that its copies and the hosts of tests use too. */
function shareTemplates(installation: string, shared: string): void {
  const own = join(installation, 'host', 'templates')
  renameSync(own, shared)
  symlinkSync(shared, own)
}

/** The token that opens /metrics of the run's Worker. */
const METRICS_TOKEN = 'metrics-token-of-the-tests-0123456789'

const ENTRY = fileURLToPath(new URL('support/worker-entry.ts', import.meta.url))

/** A public name, so that requests that are refused for it are refused as the installation's own. */
const BASE_URL = 'https://api.example.com'

/** Starts one Postgres, proxy, S3 server and Worker for the whole run; each test makes its own organization. */
export default async function setup(project: TestProject) {
  const folder = mkdtempSync(join(tmpdir(), 'pilothouse-test-'))
  // For all processes of the run: hundreds of them load wrangler, Miniflare or the control plane's modules.
  process.env.NODE_COMPILE_CACHE ??= join(folder, 'compile-cache')
  // For the hosts that tests start, whether in a worker of vitest or in a process of their own.
  const templates = join(folder, 'templates')
  process.env.TEST_TEMPLATES = templates
  const begun = join(folder, 'begun')
  const bundle = join(folder, 'bundle')
  const begin = async () => {
    await (await startServicesApart(begun, BASE_URL)).stop()
    shareTemplates(begun, templates)
  }
  const build = async () => {
    // Tests that run `npm start` use a copy of this folder.
    const deployed = join(begun, 'bundle')
    await buildWorker({ folder: deployed })
    await buildWorker({ folder: bundle, entry: ENTRY, like: deployed })
  }
  const [names, github] = await Promise.all([startDoh(), startGithubServer(), begin(), build()])
  const own = join(folder, 'own')
  copyInstallation(begun, own)
  const services = await startServicesApart(own, BASE_URL)
  const servers = new Map<string, string>()
  const lines: string[] = []
  const vars = {
    ...services.vars,
    SQL_TIMEOUT_SECONDS: '6',
    // Without a short sleep time, hundreds of projects would be awake at once.
    PAID_SLEEP_AFTER_MINUTES: '0.35',
    PROJECT_DOMAIN: 'projects.example.com',
    CLIENT_ADDRESS_HEADER: 'x-test-address',
    WEBHOOK_LOOPBACK: 'on',
    IMPORT_LOOPBACK: 'on',
    WEBHOOK_DNS_URL: names.url,
    MAINTENANCE_WINDOW: 'sun 23:30 60',
    METRICS_TOKEN,
    ...github.settings,
  }
  const worker = await serveWorker(
    { vars, secrets: services.secrets },
    { bundle, folder: join(folder, 'worker'), onLine: (line) => void lines.push(line), servers },
  )
  const hooks = await listen(hooksServer({ worker, lines, names, servers }))
  project.provide('begun', begun)
  project.provide('bundle', bundle)
  project.provide('baseUrl', worker.origin)
  project.provide('controlUrl', services.controlUrl)
  const { url, run } = services.host
  project.provide('host', { url, run, key: services.secrets.HOST_KEY ?? '' })
  project.provide('adminUrl', services.adminUrl)
  project.provide('databaseHost', services.vars.DATABASE_HOST ?? '')
  project.provide('databasePort', Number(services.vars.DATABASE_PORT))
  project.provide('encryptionKey', services.secrets.ENCRYPTION_KEY ?? '')
  project.provide('s3', {
    endpoint: services.vars.S3_ENDPOINT ?? '',
    openPort: services.vars.CLOSED_PORTS ?? '',
    bucket: services.vars.S3_BUCKET ?? '',
    accessKeyId: services.secrets.S3_ACCESS_KEY_ID ?? '',
    secretAccessKey: services.secrets.S3_SECRET_ACCESS_KEY ?? '',
  })
  project.provide('github', github.settings)
  project.provide('metricsToken', METRICS_TOKEN)
  project.provide('hooksUrl', `http://127.0.0.1:${(hooks.address() as AddressInfo).port}`)

  return async () => {
    hooks.close()
    await worker.stop()
    await names.close()
    github.close()
    await services.stop()
    removeInBackground(folder)
    reportCoverage(lines)
  }
}

/**
 * Removes a folder in a process of its own: the databases of a run are a million files, which takes minutes. The shell ends at
 * once, because children of this process do not outlive it. The workers of vitest may still be writing into the folder.
 */
function removeInBackground(folder: string): void {
  const script = 'for i in 1 2 3 4 5; do rm -rf "$0" && break; sleep 1; done &'
  spawn('/bin/sh', ['-c', script, folder], { detached: true, stdio: 'ignore' }).unref()
}

/** The arguments of `npm test`; any other arguments run only a part of the tests. */
const WHOLE_SUITE = 'run --config test/vitest.config.ts'

/** Fails the run if no test raised a declared error, once the whole suite has run. */
function reportCoverage(logs: readonly string[]): void {
  if (process.argv.slice(2).join(' ') !== WHOLE_SUITE) return
  const missing = uncovered(logs)
  if (missing.length === 0) return
  console.error(`\nNo test saw these (route, error) pairs, or they were logged as faults:\n  ${missing.join('\n  ')}`)
  process.exitCode = 1
}

interface Hooks {
  worker: Server
  lines: readonly string[]
  names: Doh
  servers: Map<string, string>
}

/** Serves what tests do to the Worker beside HTTP: run its cron, read its log, change the addresses of host names. */
function hooksServer({ worker, lines, names, servers }: Hooks): HttpServer {
  const act = async ({ url = '' }: IncomingMessage): Promise<unknown> => {
    const { pathname, searchParams } = new URL(url, 'http://hooks')
    const at = searchParams.get('at')
    if (pathname === '/tick') return worker.tick(at === null ? undefined : new Date(at))
    if (pathname === '/logs') {
      // Lines that the Worker wrote before its answer may still be unread in the pipe.
      for (let turn = 0; turn < 2; turn++) await setImmediate()
      return lines.filter((line) => line.includes(searchParams.get('part') ?? ''))
    }
    if (pathname !== '/names') throw new Error(`no such hook: ${url}`)
    const host = searchParams.get('host') ?? ''
    names.zones.set(host, JSON.parse(searchParams.get('zone') ?? '{}') as Zone)
    const origin = searchParams.get('origin')
    if (origin) servers.set(host, origin)
    return null
  }
  return createServer((request, response) => {
    act(request).then(
      (result) => response.end(JSON.stringify(result ?? null)),
      (error) => response.writeHead(500).end(String(error)),
    )
  })
}

const listen = (server: HttpServer) =>
  new Promise<HttpServer>((resolve) => {
    server.listen(0, '127.0.0.1', () => resolve(server))
  })
