import * as z from 'zod'

/** Plans of organizations; the specification names them. */
export const PLANS = ['free', 'pro', 'team', 'enterprise', 'platform'] as const
export type Plan = (typeof PLANS)[number]

const optional = z.string().trim().optional()

export const HostName = z
  .string()
  .regex(/^([a-z0-9-]+\.)*[a-z0-9-]+$/, 'must be a host name in lower case, without a scheme and a port')

const flag = z
  .enum(['on', 'off'])
  .default('off')
  .transform((value) => value === 'on')

const minutes = z.coerce.number().min(0).max(10_080)

/** Weekdays in the order of `Date.prototype.getUTCDay()`. */
export const WEEKDAYS = ['sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat'] as const

/** A maintenance window that repeats every week. */
export const MaintenanceWindow = z.object({
  day: z.enum(WEEKDAYS),
  start_utc: z.string(),
  duration_minutes: z.int().min(1).max(1_440),
})

const MaintenanceWindowText = z
  .string()
  .regex(
    /^[a-z]{3} ([01]\d|2[0-3]):[0-5]\d \d{1,4}$/,
    'must be a weekday, a time in UTC and a duration in minutes, such as sun 03:00 120',
  )
  .transform((text) => {
    const [day, start_utc, minutes] = text.split(' ')
    return { day, start_utc, duration_minutes: Number(minutes) }
  })
  .pipe(MaintenanceWindow)

const RESOURCE_CONFIGURATION =
  'arn:aws(-cn|-us-gov)?:vpc-lattice:[a-z0-9-]+:\\d{12}:resourceconfiguration/rcfg-[0-9a-z]{17}'
const DATABASE = '([a-z0-9-]+=)?'
const RESOURCE_CONFIGURATIONS = new RegExp(
  `^${DATABASE}${RESOURCE_CONFIGURATION}(,${DATABASE}${RESOURCE_CONFIGURATION})*$`,
)

/** Settings of the engine that runs the projects' databases. */
const EngineConfig = z.discriminatedUnion('ENGINE', [
  z.object({
    ENGINE: z.literal('host'),
    /** URL of a database host's control API and of its SQL over HTTP. `admin hosts add` adds further hosts. */
    HOST_URL: optional.pipe(
      z
        .url()
        .transform((url) => url.replace(/\/+$/, ''))
        .optional(),
    ),
    /** Secret by which the control plane authenticates to the host. */
    HOST_KEY: optional,
    /** Host name at which clients reach the host's databases. */
    DATABASE_HOST: optional,
    DATABASE_PORT: optional.transform((text) => text && Number(text)).pipe(z.int().min(1).max(65535).optional()),
    /** If set, each project's database is also reachable at `db.{ref}.{DATABASE_DOMAIN}`. */
    DATABASE_DOMAIN: optional,
  }),
  z.object({
    ENGINE: z.literal('neon'),
    NEON_API_KEY: z.string().min(1),
    NEON_API_URL: z.url().default('https://console.neon.tech/api/v2'),
    /** Neon organization that owns the projects; not needed with an organization's own API key. */
    NEON_ORG_ID: optional,
    /** Postgres version of new projects. */
    NEON_POSTGRES_VERSION: z.coerce.number().int().min(16).max(18).default(18),
  }),
])

/** The GitHub App of this installation. */
export const GithubConfig = z.object({
  GITHUB_APP_ID: optional,
  /** PEM file as downloaded from GitHub. */
  GITHUB_APP_PRIVATE_KEY: optional,
  GITHUB_WEBHOOK_SECRET: optional,
  GITHUB_API_URL: z.url().default('https://api.github.com'),
})

const GITHUB_APP_SETTINGS = ['GITHUB_APP_ID', 'GITHUB_APP_PRIVATE_KEY', 'GITHUB_WEBHOOK_SECRET'] as const

/** Whether each key of ENCRYPTION_KEY has an id of its own: of two with the same id, only one would open secrets. */
function hasUniqueIds(setting: string): boolean {
  const ids = setting.split(',').map((entry) => entry.trim().split(':')[0])
  return new Set(ids).size === ids.length
}

const SharedConfig = z.object({
  ...GithubConfig.shape,
  /** The trailing slash is removed, as paths are appended directly. */
  BASE_URL: z.url().transform((url) => url.replace(/\/+$/, '')),
  DEFAULT_PLAN: z.enum(PLANS).default('enterprise'),
  DATABASE_URL: z.string().regex(/^postgres(ql)?:\/\//, 'must begin with postgresql:// or postgres://'),
  /** Base URL of a Neon-compatible proxy in front of Postgres; empty if the database is Neon itself. */
  NEON_PROXY: optional,
  /** NEON_PROXY for the project databases of the driver `neon`. */
  ENGINE_NEON_PROXY: optional,
  ENCRYPTION_KEY: z
    .string()
    .regex(
      /^\s*\w+:[A-Za-z0-9+/]{43}=\s*(,\s*\w+:[A-Za-z0-9+/]{43}=\s*)*$/,
      'must be <id>:<base64 of 32 bytes>, or several of these separated by commas',
    )
    .refine(hasUniqueIds, 'must not use an id for two keys'),
  S3_ENDPOINT: z.url(),
  /** Endpoint of the bucket in presigned URLs, which clients use; S3_ENDPOINT if empty. */
  S3_PUBLIC_ENDPOINT: z.url().optional(),
  S3_REGION: z.string().min(1).default('auto'),
  S3_BUCKET: z.string().min(1),
  S3_ACCESS_KEY_ID: z.string().min(1),
  S3_SECRET_ACCESS_KEY: z.string().min(1),
  /** Parent domain of project hosts: each project answers at `{ref}.{PROJECT_DOMAIN}`, and always at `{BASE_URL}/p/{ref}`. */
  PROJECT_DOMAIN: HostName.optional(),
  /** Header in which the reverse proxy passes the client's IP address; empty if clients connect directly. */
  CLIENT_ADDRESS_HEADER: optional.pipe(
    z
      .string()
      .regex(/^[\w!#$%&'*+.^`|~-]+$/, 'must be the name of a header')
      .optional(),
  ),
  /** Weekly maintenance window of the installation: weekday, start in UTC, duration in minutes. */
  MAINTENANCE_WINDOW: optional.pipe(MaintenanceWindowText.optional()),
  /** Idle time after which a database on the free plan stops; the next session wakes it. 0 means never. */
  SLEEP_AFTER_MINUTES: minutes.default(15),
  /** SLEEP_AFTER_MINUTES for the other plans. */
  PAID_SLEEP_AFTER_MINUTES: minutes.default(0),
  /** Time limit of SQL that is sent through the API. */
  SQL_TIMEOUT_SECONDS: z.coerce.number().int().min(1).max(300).default(60),
  /** Time limit for each MiB of a JSON request body, and for each 64 KiB of any other request body. */
  BODY_TIMEOUT_SECONDS: z.coerce.number().int().min(1).max(300).default(60),
  /** DNS-over-HTTPS endpoint (JSON) that resolves the destinations of webhooks before they are allowed. */
  WEBHOOK_DNS_URL: z.url().default('https://cloudflare-dns.com/dns-query'),
  /** Allows webhook receivers on this machine. For development only. */
  WEBHOOK_LOOPBACK: flag,
  /** Time limit for the whole response of a receiver, body included. */
  WEBHOOK_TIMEOUT_SECONDS: z.coerce.number().int().min(1).max(20).default(20),
  /** Time after a secret rotation in which deliveries are also signed with the old secret. */
  WEBHOOK_ROTATION_HOURS: z.coerce.number().int().min(0).max(168).default(24),
  /** An endpoint is disabled after failing for this long without a success. 0 means never. */
  WEBHOOK_DISABLE_AFTER_DAYS: z.coerce.number().int().min(0).max(14).default(0),
  /** VPC Lattice ARNs separated by commas: `<database identifier>=<arn>`, or one ARN alone for the primary databases on the host of the settings. */
  PRIVATE_LINK_RESOURCE_CONFIGURATIONS: optional
    .transform((list) => list?.replaceAll(/\s/g, ''))
    .pipe(z.string().regex(RESOURCE_CONFIGURATIONS, 'must be ARNs of VPC Lattice resource configurations').optional()),
  /** AWS credentials that share the resource configurations through AWS RAM. */
  PRIVATE_LINK_AWS_ACCESS_KEY_ID: optional,
  PRIVATE_LINK_AWS_SECRET_ACCESS_KEY: optional,
  /** Replaces the AWS RAM endpoint of the resource configuration's region. */
  PRIVATE_LINK_RAM_URL: z.url().optional(),
  /** Set by `npm start`: this Worker alone runs tasks, so a lease that is not its own belongs to a process that has died. */
  SOLE_WORKER: flag,
  /** Bearer token of /metrics. Without it there are no metrics. */
  METRICS_TOKEN: optional.pipe(
    z.string().min(32, 'must have at least 32 characters: `openssl rand -hex 32` generates one').optional(),
  ),
})

const hostOf = (url: string): string => URL.parse(url)?.hostname ?? ''

const PRIVATE_LINK_SETTINGS = [
  'PRIVATE_LINK_RESOURCE_CONFIGURATIONS',
  'PRIVATE_LINK_AWS_ACCESS_KEY_ID',
  'PRIVATE_LINK_AWS_SECRET_ACCESS_KEY',
] as const

/** Settings that must be set all together or not at all. */
const HOST_SETTINGS = ['HOST_URL', 'HOST_KEY', 'DATABASE_HOST', 'DATABASE_PORT'] as const

const REQUIRED_TOGETHER = { 'private link': PRIVATE_LINK_SETTINGS, 'the GitHub App': GITHUB_APP_SETTINGS }

/** Every variable and secret that the Worker reads. docs/configuration.md describes each; a test compares the two. */
export const Config = SharedConfig.superRefine((config, check) => {
  for (const [feature, names] of Object.entries(REQUIRED_TOGETHER)) {
    const missing = names.filter((name) => config[name] === undefined)
    if (missing.length === names.length) continue
    for (const name of missing)
      check.addIssue({ code: 'custom', path: [name], message: `is missing: ${feature} needs it` })
  }
})
  .and(EngineConfig)
  .superRefine(({ DATABASE_URL, NEON_PROXY }, check) => {
    if (NEON_PROXY !== undefined || hostOf(DATABASE_URL).endsWith('.neon.tech')) return
    // The driver would send the connection string to another host of the same domain.
    const message = 'is missing: it is required unless DATABASE_URL is a Neon database'
    check.addIssue({ code: 'custom', path: ['NEON_PROXY'], message })
  })
  .superRefine((config, check) => {
    const missing = config.ENGINE === 'host' ? HOST_SETTINGS.filter((name) => config[name] === undefined) : []
    if (missing.length === HOST_SETTINGS.length) return
    for (const name of missing)
      check.addIssue({ code: 'custom', path: [name], message: 'is missing: the database host needs it' })
  })
export type Config = z.output<typeof Config>

/** Leaves out empty settings, which are not set: a number would take one as 0. */
export const withoutEmpty = (settings: object): object =>
  Object.fromEntries(Object.entries(settings).filter(([, value]) => typeof value !== 'string' || value.trim() !== ''))

export const parseConfig = (settings: object) => Config.safeParse(withoutEmpty(settings))

const parsed = new WeakMap<object, Config>()

/** Parses the settings once per isolate. Throws an error that names each wrong setting; every request then answers 500. */
export function readConfig(bindings: object): Config {
  const known = parsed.get(bindings)
  if (known) return known
  const result = parseConfig(bindings)
  if (!result.success) throw new Error(`settings: ${z.prettifyError(result.error).replaceAll('\n', ' ')}`)
  parsed.set(bindings, result.data)
  return result.data
}
