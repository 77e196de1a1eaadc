import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import pg from 'pg'
import { buildWorker } from '../../../dev/bundle.ts'
import { controlUrlOf } from '../../../dev/control-database.ts'
import { saveCredentials } from '../../../dev/credentials.ts'
import { freePort } from '../../../dev/ports.ts'
import { startS3 } from '../../../dev/s3.ts'
import type { LocalSecrets } from '../../../dev/secrets.ts'
import { startServices } from '../../../dev/services.ts'
import { until } from '../../support/wire/installation.ts'

const START_MS_MAX = 90_000
const ROOT = fileURLToPath(new URL('../../..', import.meta.url))
const BUCKET = 'pilothouse'

interface Reply {
  status: number
  isRetryable: boolean
  body: unknown
}

/**
 * Starts a program that leads a process group, and can be killed with everything that it has started in the group.
 */
function program(file: string, args: readonly string[], env: NodeJS.ProcessEnv = {}) {
  let child: ChildProcess | undefined
  let output = ''

  return {
    output: () => output,
    pid: () => child?.pid,
    start(): void {
      const started = spawn('node', [join(ROOT, file), ...args], {
        cwd: ROOT,
        env: { ...process.env, ...env },
        detached: true,
        stdio: ['ignore', 'pipe', 'pipe'],
      })
      const collectOutput = (data: Buffer) => {
        output += data
      }
      started.stdout.on('data', collectOutput)
      started.stderr.on('data', collectOutput)
      child = started
    },
    /** Sends `SIGKILL` by default; waits for its end. */
    async end(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
      if (!child || child.exitCode !== null || child.signalCode !== null) return
      const exited = once(child, 'exit')
      process.kill(signal === 'SIGKILL' ? -Number(child.pid) : Number(child.pid), signal)
      await exited
    },
  }
}

/** The host of the control database, and another one that projects can be moved to. */
const HOSTS = ['local', 'second'] as const

/**
 * Opens an installation in the folder, with the daemons of its two hosts and its API each in a process of its own.
 * The folder of an installation that was started before saves the time to make one.
 */
export async function openFleet(folder: string) {
  const bundle = join(folder, 'bundle')
  if (!existsSync(join(folder, 'secrets.json'))) {
    const services = await startServices({ folder, baseUrl: 'http://127.0.0.1', durable: true })
    await services.stop()
  }
  if (!existsSync(bundle)) await buildWorker({ folder: bundle, entry: join(ROOT, 'test/support/worker-entry.ts') })
  const secrets: LocalSecrets = JSON.parse(readFileSync(join(folder, 'secrets.json'), 'utf8'))
  const { S3_ACCESS_KEY_ID: accessKeyId, S3_SECRET_ACCESS_KEY: secretAccessKey } = secrets
  const s3 = await startS3({ folder: join(folder, 's3'), buckets: [BUCKET], accessKeyId, secretAccessKey })
  const [apiPort, ...hostPorts] = await Promise.all(Array.from({ length: 5 }, () => freePort(0, 'api')))
  const apiUrl = `http://127.0.0.1:${apiPort}`
  const bucket = {
    S3_ENDPOINT: s3.endpoint,
    S3_REGION: 'auto',
    S3_BUCKET: BUCKET,
    S3_ACCESS_KEY_ID: accessKeyId,
    S3_SECRET_ACCESS_KEY: secretAccessKey,
  }
  const hosts = HOSTS.map((name, index) => {
    const [port, postgresPort] = hostPorts.slice(2 * index)
    const hostFolder = join(folder, name === 'local' ? 'host' : name)
    const url = `http://127.0.0.1:${port}`
    const daemon = program('host/main.ts', [], {
      ...bucket,
      HOST_KEY: secrets.HOST_KEY,
      ARCHIVE_KEY: secrets.ARCHIVE_KEY,
      HOST_FOLDER: hostFolder,
      HOST_PORT: String(port),
      POSTGRES_PORT: String(postgresPort),
    })
    const ask = (method: string, path: string, body?: object): Promise<Response> =>
      fetch(`${url}/host/v1${path}`, {
        method,
        headers: { authorization: `Bearer ${secrets.HOST_KEY}` },
        ...(body && { body: JSON.stringify(body) }),
        signal: AbortSignal.timeout(30_000),
      })
    return { name, folder: hostFolder, url, postgresPort: String(postgresPort), daemon, ask }
  })
  const [local, second] = hosts as [(typeof hosts)[number], (typeof hosts)[number]]
  const controlUrl = controlUrlOf(Number(local.postgresPort), secrets.CONTROL_PASSWORD)
  const bindings = {
    ...bucket,
    ENGINE: 'host',
    HOST_URL: local.url,
    NEON_PROXY: local.url,
    DATABASE_HOST: '127.0.0.1',
    DATABASE_PORT: local.postgresPort,
    BASE_URL: apiUrl,
    DEFAULT_PLAN: 'enterprise',
    CLIENT_ADDRESS_HEADER: '',
    SOLE_WORKER: 'on',
    DATABASE_URL: controlUrl,
    HOST_KEY: secrets.HOST_KEY,
    ENCRYPTION_KEY: secrets.ENCRYPTION_KEY,
  }
  const options = { bundle, port: apiPort, bindings, folder: join(folder, 'worker') }
  const api = program('test/faults/fleet/api.ts', [JSON.stringify(options)])

  /** Rejects while the control database is unreachable. */
  async function rows<Row>(text: string, values: unknown[] = []): Promise<Row[]> {
    const client = new pg.Client({ connectionString: controlUrl, connectionTimeoutMillis: 5_000 })
    client.on('error', () => {})
    await client.connect()
    try {
      return (await client.query(text, values)).rows
    } finally {
      await client.end().catch(() => {})
    }
  }

  /** Runs a command of `npm run admin`; rejects with what it prints. */
  async function admin(...args: readonly string[]): Promise<string> {
    const { ENCRYPTION_KEY, HOST_KEY } = secrets
    const env = { ...process.env, DATABASE_URL: controlUrl, HOST_URL: local.url, ENCRYPTION_KEY, HOST_KEY }
    return (await promisify(execFile)('node', [join(ROOT, 'dev/admin.ts'), ...args], { cwd: ROOT, env })).stdout
  }

  const untilHostsAnswer = async () => {
    for (const { name, ask } of hosts)
      await until(`${name} answers`, START_MS_MAX, async () => ((await ask('GET', '')).ok ? true : undefined))
  }

  const untilApiAnswers = () =>
    until('the API answers', START_MS_MAX, async () => ((await fetch(`${apiUrl}/health`)).ok ? true : undefined))

  for (const { daemon } of hosts) daemon.start()
  await untilHostsAnswer()
  await admin(
    'hosts',
    'add',
    second.name,
    second.url,
    '--database-host',
    '127.0.0.1',
    '--database-port',
    second.postgresPort,
  )
  const { credentials } = await saveCredentials({
    ...{ folder, controlUrl, baseUrl: apiUrl, onLine: () => {} },
    ...{ databasePort: Number(local.postgresPort), hostUrl: local.url, s3Url: s3.endpoint },
  })
  const { access_token: token } = credentials
  api.start()
  await untilApiAnswers()

  let clock = Date.now()
  /**
   * Calls the API; rejects if no answer arrives. A call that writes no times comes a minute after the request before,
   * so that it meets no rate limit.
   */
  async function call(method: string, path: string, body?: object): Promise<Reply> {
    clock += 60_000
    const response = await fetch(new URL(path, apiUrl), {
      method,
      headers: {
        authorization: `Bearer ${token}`,
        'content-type': 'application/json',
        ...((method === 'GET' || path.endsWith('/query')) && { 'x-test-clock': String(clock) }),
      },
      ...(body && { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(60_000),
    })
    const text = await response.text()
    const isRetryable = response.headers.has('retry-after')
    return { status: response.status, isRetryable, body: text === '' ? undefined : JSON.parse(text) }
  }

  return {
    api,
    hosts,
    s3: { ...bucket, endpoint: s3.endpoint },
    admin,
    rows,
    call,
    untilHostsAnswer,
    untilApiAnswers,
    /** Stops everything in order. */
    async stop(): Promise<void> {
      await api.end('SIGKILL')
      for (const { daemon } of hosts) await daemon.end('SIGTERM')
      await s3.stop()
    },
  }
}
export type Fleet = Awaited<ReturnType<typeof openFleet>>
export type FleetHost = Fleet['hosts'][number]
