import { availableParallelism } from 'node:os'
import * as z from 'zod'
import { HostName } from '../src/config.ts'
import { REGION_CODES } from '../src/model/tables/values.ts'
import { describeError } from '../src/platform/http/log.ts'
import { settingProblem } from '../src/platform/setting-problem.ts'
import { Archive } from './backups/archive.ts'
import { DamagedObject } from './backups/errors.ts'
import { BucketRefused, s3Store } from './backups/store.ts'
import { type HostOptions, startHost } from './host.ts'
import { listFolders } from './instances/record.ts'
import { type HostLog, hostLogLine } from './log.ts'

const network = z.union(
  [z.ipv4(), z.ipv6(), z.cidrv4(), z.cidrv6()],
  'must be IP addresses or CIDR networks, separated by commas',
)
/** Longest wait for the bucket at the start. */
const BUCKET_MS_MAX = 5_000
const ipAddress = z.union([z.ipv4(), z.ipv6()], 'must be an IP address')
const port = z.coerce.number().int().min(1).max(65_535)

/** Environment variables of the database host. */
const Settings = z
  .object({
    HOST_KEY: z
      .string('is missing: `openssl rand -hex 32` generates one')
      .min(32, 'must have at least 32 characters: `openssl rand -hex 32` generates one'),
    HOST_FOLDER: z.string().min(1).default('/var/lib/pilothouse'),
    /** The HTTP port has no TLS: put a TLS proxy in front of it before other machines can reach it. */
    HOST_ADDRESS: z.string().min(1).default('127.0.0.1'),
    HOST_PORT: port.default(54330),
    /** The networks of TLS proxies in front of the HTTP port, separated by commas: `10.0.0.5,fd00::/8`. */
    TRUSTED_PROXIES: z
      .string()
      .transform((text) => text.split(',').map((network) => network.trim()))
      .pipe(z.array(network))
      .optional(),
    POSTGRES_PORT: port.default(54322),
    /** The address of the Postgres port, HOST_ADDRESS by default. With another one, the HTTP port can be open to this machine alone. */
    POSTGRES_ADDRESS: ipAddress.optional(),
    DATABASE_DOMAIN: z.string().toLowerCase().pipe(HostName).optional(),
    /** The API's region that the machine is in or nearest to. */
    HOST_REGION: z.enum(REGION_CODES).default('us-east-1'),
  })
  .refine(({ HOST_PORT, POSTGRES_PORT }) => HOST_PORT !== POSTGRES_PORT, {
    path: ['HOST_PORT'],
    message: 'must differ from POSTGRES_PORT',
  })

/** Environment variables of the bucket for backups and WAL: either all without a default are set, or none. */
const ArchiveSettings = z.object({
  ARCHIVE_KEY: z
    .string()
    .min(32, 'must have at least 32 characters. Keep a copy elsewhere: no backup can be opened without it'),
  S3_ENDPOINT: z.url(),
  S3_REGION: z.string().min(1).default('auto'),
  S3_BUCKET: z.string().min(1),
  S3_ACCESS_KEY_ID: z.string().min(1),
  S3_SECRET_ACCESS_KEY: z.string().min(1),
})

function readArchiveSettings(env: NodeJS.ProcessEnv): HostOptions['archive'] {
  const names = Object.keys(ArchiveSettings.omit({ S3_REGION: true }).shape)
  const missing = names.filter((name) => !env[name])
  if (missing.length === names.length) return undefined
  if (missing.length > 0)
    throw new Error(
      `Missing ${missing.join(', ')}: backups need ${names.join(', ')}. Without backups, set none of them.`,
    )
  const {
    ARCHIVE_KEY: key,
    S3_ENDPOINT: endpoint,
    S3_REGION: region,
    S3_BUCKET: bucket,
    ...credentials
  } = parseSettings(ArchiveSettings, env)
  const { S3_ACCESS_KEY_ID: accessKeyId, S3_SECRET_ACCESS_KEY: secretAccessKey } = credentials
  return { endpoint, region, bucket, accessKeyId, secretAccessKey, key }
}

/** Refuses wrong settings before the first instance is made. Later, a bucket that fails must not keep the databases down. */
async function checkArchive(archive: NonNullable<HostOptions['archive']>, root: string): Promise<void> {
  try {
    const store = s3Store(archive)
    const signal = AbortSignal.timeout(BUCKET_MS_MAX)
    await store.check(signal)
    await new Archive(store, Buffer.from(archive.key), signal).checkKey()
  } catch (error) {
    if (error instanceof DamagedObject)
      throw new Error(
        `ARCHIVE_KEY is not the key that the bucket ${archive.bucket} was used with (${error.message}): set that key, or use a new bucket.`,
      )
    const { names } = await listFolders({ root, run: '' })
    if (!(error instanceof BucketRefused) || names.length > 0)
      return log('archive_unreachable', { error: describeError(error) })
    throw new Error(
      `The bucket of the archive cannot be used (${error.message}): check S3_ENDPOINT, S3_REGION, S3_BUCKET, S3_ACCESS_KEY_ID and S3_SECRET_ACCESS_KEY.`,
    )
  }
}

function parseSettings<Shape extends z.ZodType>(shape: Shape, env: NodeJS.ProcessEnv): z.infer<Shape> {
  const parsed = shape.safeParse(env)
  if (!parsed.success) throw new Error(parsed.error.issues.map((issue) => settingProblem(issue, env)).join('\n'))
  return parsed.data
}

const log: HostLog = (event, fields) => console.log(hostLogLine(event, fields))

async function main(): Promise<void> {
  const archive = readArchiveSettings(process.env)
  const settings = parseSettings(Settings, process.env)
  if (archive) await checkArchive(archive, settings.HOST_FOLDER)
  const host = await startHost({
    key: settings.HOST_KEY,
    folder: settings.HOST_FOLDER,
    address: settings.HOST_ADDRESS,
    port: settings.HOST_PORT,
    gatewayPort: settings.POSTGRES_PORT,
    gatewayAddress: settings.POSTGRES_ADDRESS,
    region: settings.HOST_REGION,
    proxies: settings.TRUSTED_PROXIES,
    domain: settings.DATABASE_DOMAIN,
    archive,
    log,
  }).catch((error) => {
    throw portInUse(error, settings) ?? error
  })
  let isStopping = false
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      // A second signal exits at once: Postgres recovers from its WAL at the next start.
      if (isStopping) process.exit(1)
      isStopping = true
      log('host_stopping', { signal })
      host.stop().then(
        () => {
          log('host_stopped', {})
          process.exit(0)
        },
        (error) => fail(error),
      )
    })
  }
  const versions = host.pool.versions.map(({ version }) => version)
  log('host_started', {
    instances: host.pool.list().length,
    postgres: versions,
    cores: availableParallelism(),
    url: host.url,
    postgres_port: host.gatewayPort,
    archive: archive !== undefined,
  })
}

/** Names the setting of a port that another program uses. */
function portInUse(
  error: NodeJS.ErrnoException & { port?: number },
  settings: Record<'HOST_PORT' | 'POSTGRES_PORT', number>,
): Error | undefined {
  const name = (['HOST_PORT', 'POSTGRES_PORT'] as const).find((name) => settings[name] === error.port)
  if (error.code !== 'EADDRINUSE' || !name) return undefined
  return new Error(`${name}=${error.port} is in use: stop the program that listens there, or choose another port.`)
}

function fail(error: unknown): never {
  console.error(error instanceof Error ? error.message : error)
  process.exit(1)
}

main().catch(fail)
