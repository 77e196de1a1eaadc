import { existsSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { CONTROL_ROLE, prepareControlDatabase } from './control-database.ts'
import { guardChildren } from './guard.ts'
import { startNeonProxy } from './neon-proxy.ts'
import { startGateway } from './postgres/gateway.ts'
import { type Postgres, startPostgres } from './postgres.ts'
import { startS3 } from './s3.ts'
import { readSecrets } from './secrets.ts'
import { errorCode, StartError } from './start-error.ts'

const BUCKET = 'pilothouse'

export interface ServicesOptions {
  /** Where everything that must survive a restart is kept. */
  folder: string
  /** 0, the default, takes any free port. */
  ports?: { postgres?: number; proxy?: number; s3?: number }
  durable: boolean
  baseUrl: string
  /** Told of each service that is up, with the time it took. */
  onStep?: (name: string, ms: number) => void
}

export interface Services {
  /** The Worker's variables and secrets. */
  vars: Record<string, string>
  secrets: Record<string, string>
  adminUrl: string
  controlUrl: string
  stop(): Promise<void>
  /** Settles when Postgres has ended, whether we stopped it or not. */
  ended: Promise<void>
}

/** Starts what the Worker needs: Postgres with the control database, the Neon-compatible proxy and the bucket. */
export async function startServices(options: ServicesOptions): Promise<Services> {
  const { ports = {}, durable, baseUrl, onStep = () => {} } = options
  const folder = resolve(options.folder)
  guardChildren()
  await makeFolder(folder)
  const isNew = !existsSync(join(folder, 'postgres'))
  const started: { stop(): Promise<void> }[] = []
  const stop = () => stopInReverse(started)

  async function step<T>(name: string, work: () => Promise<T>): Promise<T> {
    const startedAt = performance.now()
    const result = await work()
    onStep(name, performance.now() - startedAt)
    return result
  }

  async function keep<T extends { stop(): Promise<void> }>(starting: Promise<T>): Promise<T> {
    const service = await starting
    started.push(service)
    return service
  }

  try {
    const known = await readSecrets(folder, { isNew })
    const postgres = await keepPostgres()
    const [{ port }, { url: proxyUrl }, { endpoint }, controlUrl] = await settle([
      step('gateway', () => keep(gatewayFor(postgres))),
      step('proxy', () => keep(proxyFor(postgres.port))),
      step('s3', () => keep(s3For(known.S3_ACCESS_KEY_ID, known.S3_SECRET_ACCESS_KEY))),
      step('migrations', () => prepareControlDatabase({ adminUrl: postgres.url, password: known.CONTROL_PASSWORD })),
    ])
    return {
      vars: {
        ENGINE: 'postgres',
        NEON_PROXY: proxyUrl,
        DATABASE_HOST: '127.0.0.1',
        DATABASE_PORT: String(port),
        S3_ENDPOINT: endpoint,
        S3_REGION: 'auto',
        S3_BUCKET: BUCKET,
        BASE_URL: baseUrl,
        DEFAULT_PLAN: 'enterprise',
        // Callers connect directly: a header that tells their address would be their own word.
        CLIENT_ADDRESS_HEADER: '',
      },
      secrets: {
        DATABASE_URL: controlUrl,
        ENGINE_URL: postgres.url,
        ENCRYPTION_KEY: known.ENCRYPTION_KEY,
        S3_ACCESS_KEY_ID: known.S3_ACCESS_KEY_ID,
        S3_SECRET_ACCESS_KEY: known.S3_SECRET_ACCESS_KEY,
      },
      adminUrl: postgres.url,
      controlUrl,
      stop,
      ended: postgres.ended,
    }
  } catch (error) {
    await stop()
    throw error
  }

  function keepPostgres() {
    return step('postgres', () => keep(startPostgres({ folder: join(folder, 'postgres'), durable })))
  }

  function gatewayFor({ port: upstreamPort, certificate }: Postgres) {
    return startGateway({ port: ports.postgres ?? 0, upstreamPort, certificate })
  }

  function proxyFor(port: number) {
    return startNeonProxy({
      port: ports.proxy ?? 0,
      postgres: { host: '127.0.0.1', port },
      pooledRoles: [CONTROL_ROLE, 'p_*_storage'],
    })
  }

  function s3For(accessKeyId: string, secretAccessKey: string) {
    return startS3({ port: ports.s3 ?? 0, folder: join(folder, 's3'), buckets: [BUCKET], accessKeyId, secretAccessKey })
  }
}

async function makeFolder(folder: string) {
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 })
  } catch (error) {
    throw new StartError(
      `Cannot make ${folder} (${errorCode(error)}): give this user the right, or choose another with PILOTHOUSE_DATA=<folder>.`,
    )
  }
}

/** Promise.all that waits for every one to end, so that none starts after the others were stopped. */
async function settle<T extends readonly unknown[]>(work: { [K in keyof T]: Promise<T[K]> }): Promise<T> {
  await Promise.allSettled(work)
  return (await Promise.all(work)) as unknown as T
}

async function stopInReverse(started: { stop(): Promise<void> }[]) {
  for (const service of started.splice(0).reverse()) await service.stop()
}
