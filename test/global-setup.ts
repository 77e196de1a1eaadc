import { mkdtempSync, rmSync } from 'node:fs'
import { createServer, type IncomingMessage, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fetch as fetchWithSockets, type Request as SocketRequest } from 'miniflare'
import type { TestProject } from 'vitest/node'
import { createTestHarness, type TestHarness } from 'wrangler'
import { startServices } from '../dev/services.ts'
import { uncovered } from './coverage.ts'
import { type Doh, startDoh, type Zone } from './delivery/doh.ts'

declare module 'vitest' {
  interface ProvidedContext {
    baseUrl: string
    controlUrl: string
    adminUrl: string
    hooksUrl: string
    databaseHost: string
    databasePort: number
    encryptionKey: string
    s3: { endpoint: string; bucket: string; accessKeyId: string; secretAccessKey: string }
  }
}

/** A public name, so that what is refused for it is refused as the installation's own. */
const BASE_URL = 'https://api.example.com'

/** One Postgres, proxy, S3 server and Worker for the whole run; each test makes its own organization. */
export default async function setup(project: TestProject) {
  const folder = mkdtempSync(join(tmpdir(), 'pilothouse-test-'))
  const services = await startServices({ folder, baseUrl: BASE_URL, durable: false })
  const names = await startDoh()
  const servers = new Map<string, string>()
  routeFetches(servers)
  const harness = createTestHarness({
    workers: [
      {
        configPath: './wrangler.toml',
        vars: {
          ...services.vars,
          SQL_TIMEOUT_SECONDS: '6',
          TEST_CLOCK: 'on',
          PROJECT_DOMAIN: 'projects.example.com',
          CLIENT_ADDRESS_HEADER: 'x-test-address',
          WEBHOOK_LOOPBACK: 'on',
          WEBHOOK_TIMEOUT_SECONDS: '2',
          WEBHOOK_DNS_URL: names.url,
        },
        secrets: services.secrets,
      },
      { configPath: './src/builder/wrangler.toml' },
    ],
  })
  const { url } = await harness.listen()
  const hooks = await listen(hooksServer(harness, { names, servers }))
  project.provide('baseUrl', url.origin)
  project.provide('controlUrl', services.controlUrl)
  project.provide('adminUrl', services.adminUrl)
  project.provide('databaseHost', services.vars.DATABASE_HOST ?? '')
  project.provide('databasePort', Number(services.vars.DATABASE_PORT))
  project.provide('encryptionKey', services.secrets.ENCRYPTION_KEY ?? '')
  project.provide('s3', {
    endpoint: services.vars.S3_ENDPOINT ?? '',
    bucket: services.vars.S3_BUCKET ?? '',
    accessKeyId: services.secrets.S3_ACCESS_KEY_ID ?? '',
    secretAccessKey: services.secrets.S3_SECRET_ACCESS_KEY ?? '',
  })
  project.provide('hooksUrl', `http://127.0.0.1:${(hooks.address() as AddressInfo).port}`)

  return async () => {
    const logs = harness.getLogs().map(({ message }) => message)
    hooks.close()
    await harness.close()
    await names.close()
    await services.stop()
    rmSync(folder, { recursive: true, force: true })
    reportCoverage(logs)
  }
}

/**
 * The harness sends what the Worker fetches through Node's fetch, which cannot open WebSockets; Miniflare's can.
 * Hosts in `servers` are reached at the origin that stands there, whatever their names resolve to.
 */
export function routeFetches(servers: ReadonlyMap<string, string>): void {
  const fetchHttp = globalThis.fetch
  globalThis.fetch = (input, init) => {
    const upgrades = new Headers(init?.headers).get('upgrade') === 'websocket'
    if (upgrades)
      return fetchWithSockets(String(input), init as unknown as SocketRequest) as unknown as Promise<Response>
    const url = new URL(input instanceof Request ? input.url : input)
    const origin = servers.get(url.hostname)
    if (!origin) return fetchHttp(input, init)
    const target = new URL(url.pathname + url.search, origin)
    return fetchHttp(input instanceof Request ? new Request(target, input) : target, init)
  }
}

/** The arguments of `npm test`; with any other, only a part of the tests runs. */
const WHOLE_SUITE = 'run --config test/vitest.config.ts'

/** A declared error that no test raised fails the run, once the whole suite has run. */
function reportCoverage(logs: readonly string[]): void {
  if (process.argv.slice(2).join(' ') !== WHOLE_SUITE) return
  const missing = uncovered(logs)
  if (missing.length === 0) return
  console.error(`\nNo test saw these (route, error) pairs, or they were logged as faults:\n  ${missing.join('\n  ')}`)
  process.exitCode = 1
}

interface Network {
  names: Doh
  servers: Map<string, string>
}

/** What tests do to the Worker from outside beside HTTP: tick its cron, read its log, change what the names of hosts mean. */
function hooksServer(harness: TestHarness, { names, servers }: Network): Server {
  const act = async ({ url = '' }: IncomingMessage): Promise<unknown> => {
    const { pathname, searchParams } = new URL(url, 'http://hooks')
    if (pathname === '/tick') return harness.getWorker().scheduled({ cron: '* * * * *' })
    if (pathname === '/logs') return harness.getLogs().map(({ message }) => message)
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

const listen = (server: Server) =>
  new Promise<Server>((resolve) => {
    server.listen(0, '127.0.0.1', () => resolve(server))
  })
