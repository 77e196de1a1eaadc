import { join, resolve } from 'node:path'
import { type Host, type HostOptions, startHost } from '../host/host.ts'
import { makePrivate } from '../host/instances/files.ts'
import { hostLogLine } from '../host/log.ts'
import { FolderInUse } from '../host/run-folder.ts'
import { BUCKET, bucketSettings, s3EndpointAt } from './bucket.ts'
import { spawnAs } from './child-process.ts'
import { CLI_HOST, listen, listenForCli } from './cli-port.ts'
import { prepareControlDatabase, withClient } from './control-database.ts'
import { isNewFolder, openDataFolder } from './data-folder.ts'
import { findKeyProblem } from './encryption-key.ts'
import { guardChildren } from './guard-children.ts'
import { CLI_PORT, freePort, LOOPBACK } from './ports.ts'
import { type LocalSecrets, readSecrets } from './secrets.ts'
import { StartError } from './start-error.ts'

export interface ServicesOptions {
  /** The folder for everything that must survive a restart. */
  folder: string
  /** Ports of the services; 0, the default, takes any free port. */
  ports?: { postgres?: number; proxy?: number; s3?: number }
  durable: boolean
  /** Whether to serve databases also at the port of the `supabase` CLI, if that is free. */
  isForCli?: boolean
  /** The address at which databases are served besides 127.0.0.1; none by default. */
  postgresAddress?: string
  /** Clients may name a database by the TLS server name `db.<ref>.<domain>`. */
  domain?: string | undefined
  /** Time without a session after which instances stop, if their record names no other; null, the default, for never. */
  sleepAfterSeconds?: number | null
  baseUrl: string
  /** Called when a service is ready, with the time that it took. */
  onStep?: (name: string, ms: number) => void
  /** Receives the host's log lines; by default they go to standard output. */
  onLine?(line: string): void
}

export interface Services {
  /** The Worker's variables and secrets. */
  vars: Record<string, string>
  secrets: Record<string, string>
  controlUrl: string
  host: Host
  stop(): Promise<void>
}

/** Starts what the Worker needs: the database host, the control database on it, and the bucket. */
export async function startServices(options: ServicesOptions): Promise<Services> {
  const { ports = {}, durable, baseUrl, postgresAddress = LOOPBACK, onStep = () => {}, onLine = console.log } = options
  const folder = resolve(options.folder)
  // In a durable installation, the next start adopts the servers that a killed one has left running.
  guardChildren((file) => durable && file.endsWith('/postgres'))
  await openDataFolder(folder)
  const isNew = await isNewFolder(folder)
  const started: Promise<{ stop(): Promise<void> }>[] = []
  const stop = () => stopInReverse(started)

  async function step<T>(name: string, work: () => Promise<T>): Promise<T> {
    const startedAt = performance.now()
    const result = await work()
    onStep(name, performance.now() - startedAt)
    return result
  }

  /** Services that start at the same time are stopped in the order of these calls, and not of their ends. */
  function keep<T extends { stop(): Promise<void> }>(starting: Promise<T>): Promise<T> {
    started.push(starting)
    return starting
  }

  try {
    const known = await readSecrets(folder, { isNew })
    const s3Port = await freePort(ports.s3 ?? 0, 's3')
    const endpoint = s3EndpointAt(s3Port)
    const startDatabases = async () => {
      const host = await step('host', () => keep(hostAt(known, endpoint)))
      const cli = options.isForCli ? await listenForCli(host.accept) : undefined
      if (cli) void keep(Promise.resolve(cli))
      if (!isOfGateway(postgresAddress)) await keep(listen(host.accept, host.gatewayPort, postgresAddress))
      const controlUrl = await step('migrations', () => prepareControlDatabase(host, known.CONTROL_PASSWORD))
      if (!isNew) await requireEncryptionKey(controlUrl, known.ENCRYPTION_KEY, folder)
      return { host, cli, controlUrl }
    }
    const bucket = step('s3', () => keep(startBucket(folder, known, s3Port)))
    const [{ host, cli, controlUrl }, { openPort }] = await Promise.all([startDatabases(), bucket])
    return {
      vars: {
        ENGINE: 'host',
        HOST_URL: host.url,
        NEON_PROXY: host.url,
        DATABASE_HOST: cli || host.gatewayPort === CLI_PORT ? CLI_HOST : '127.0.0.1',
        DATABASE_PORT: String(host.gatewayPort),
        S3_ENDPOINT: endpoint,
        S3_REGION: 'auto',
        S3_BUCKET: BUCKET,
        CLOSED_PORTS: String(openPort),
        BASE_URL: baseUrl,
        DEFAULT_PLAN: 'enterprise',
        // Callers connect directly, so they could forge a header with their address.
        CLIENT_ADDRESS_HEADER: '',
      },
      secrets: {
        DATABASE_URL: controlUrl,
        HOST_KEY: known.HOST_KEY,
        ENCRYPTION_KEY: known.ENCRYPTION_KEY,
        S3_ACCESS_KEY_ID: known.S3_ACCESS_KEY_ID,
        S3_SECRET_ACCESS_KEY: known.S3_SECRET_ACCESS_KEY,
      },
      controlUrl,
      host,
      stop,
    }
  } catch (error) {
    await stop()
    throw error
  }

  function hostAt(secrets: LocalSecrets, endpoint: string) {
    return startLocalHost({
      ...{ folder, secrets, endpoint },
      isDurable: durable,
      sleepAfterSeconds: options.sleepAfterSeconds ?? null,
      port: ports.proxy ?? 0,
      gatewayPort: ports.postgres ?? 0,
      gatewayAddress: isOfGateway(postgresAddress) ? postgresAddress : LOOPBACK,
      ...(options.domain !== undefined && { domain: options.domain }),
      log: (event, fields) => onLine(hostLogLine(event, fields)),
    })
  }
}

/** Whether a server that listens at the address also serves 127.0.0.1, which everything on this machine uses. */
const isOfGateway = (address: string) => [LOOPBACK, '0.0.0.0', '::'].includes(address)

/** Refuses a start with a wrong key, after which every request that needs a secret would fail. */
async function requireEncryptionKey(controlUrl: string, key: string, folder: string): Promise<void> {
  const problem = await withClient(controlUrl, (client) => findKeyProblem(client, key))
  if (problem !== undefined)
    throw new StartError(`${join(folder, 'secrets.json')}: ${problem}. Put the key back from a backup.`)
}

/** The bucket of a data folder, in a process of its own. */
export const startBucket = (
  folder: string,
  { S3_ACCESS_KEY_ID: accessKeyId, S3_SECRET_ACCESS_KEY: secretAccessKey }: LocalSecrets,
  port = 0,
) =>
  spawnAs('bucket', async () => {
    // Slow to load: the databases start meanwhile.
    const { startS3 } = await import('./s3.ts')
    const objects = join(folder, 's3')
    // Miniflare would let every local user read the objects.
    await makePrivate(objects)
    return startS3({ port, folder: objects, buckets: [BUCKET], accessKeyId, secretAccessKey })
  })

type LocalHost = Omit<HostOptions, 'folder' | 'key' | 'archive'> & {
  folder: string
  secrets: LocalSecrets
  /** Address of the bucket, which contains the archive. */
  endpoint: string
}

/** The database host of a data folder. */
export const startLocalHost = ({ folder, secrets, endpoint, ...options }: LocalHost): Promise<Host> =>
  startHost({
    ...options,
    archive: { ...bucketSettings(endpoint, secrets), key: secrets.ARCHIVE_KEY },
    folder: join(folder, 'host'),
    key: secrets.HOST_KEY,
  }).catch(throwStartError)

function throwStartError(error: unknown): never {
  throw error instanceof FolderInUse ? new StartError(error.message) : error
}

/** A service that did not start has nothing to stop. */
async function stopInReverse(started: Promise<{ stop(): Promise<void> }>[]) {
  const services = await Promise.allSettled(started.splice(0))
  for (const service of services.reverse()) if (service.status === 'fulfilled') await service.value.stop()
}
