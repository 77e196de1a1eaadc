import * as z from 'zod'

/** Plans of organizations; the specification names them. */
export const PLANS = ['free', 'pro', 'team', 'enterprise', 'platform'] as const
export type Plan = (typeof PLANS)[number]

const optional = z
  .string()
  .trim()
  .min(1)
  .optional()
  .or(z.literal('').transform(() => undefined))

const flag = z
  .enum(['on', 'off', ''])
  .default('off')
  .transform((value) => value === 'on')

const minutes = z.coerce.number().min(0).max(10_080)

/** As dates count them. */
export const WEEKDAYS = ['sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat'] as const

/** Each week. */
export const MaintenanceWindow = z.object({
  day: z.enum(WEEKDAYS),
  start_utc: z.string(),
  duration_minutes: z.int().min(1).max(1_440),
})

const WrittenWindow = z
  .string()
  .regex(
    /^[a-z]{3} ([01]\d|2[0-3]):[0-5]\d \d{1,4}$/,
    'must be a day, a time in UTC and minutes, such as sun 03:00 120',
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

/** What carries the projects' databases. */
const EngineConfig = z.discriminatedUnion('ENGINE', [
  z.object({
    ENGINE: z.literal('host'),
    /** Of the control API and SQL over HTTP of a database host; `admin hosts add` adds others. */
    HOST_URL: optional.pipe(
      z
        .url()
        .transform((url) => url.replace(/\/+$/, ''))
        .optional(),
    ),
    /** The secret that the host knows the control plane by. */
    HOST_KEY: optional,
    /** Where clients reach its databases. */
    DATABASE_HOST: optional,
    DATABASE_PORT: optional.transform((text) => text && Number(text)).pipe(z.int().min(1).max(65535).optional()),
    /** Each project's database answers at `db.{ref}.{DATABASE_DOMAIN}` too. */
    DATABASE_DOMAIN: optional,
  }),
  z.object({
    ENGINE: z.literal('neon'),
    NEON_API_KEY: z.string().min(1),
    NEON_API_URL: z.url().default('https://console.neon.tech/api/v2'),
    /** Whose projects they are; an organization's own key needs none. */
    NEON_ORG_ID: optional,
    /** Of new projects. */
    NEON_POSTGRES_VERSION: z.coerce.number().int().min(16).max(18).default(18),
  }),
])

/** The GitHub App of this installation. */
export const GithubConfig = z.object({
  GITHUB_APP_ID: optional,
  /** In PEM, as GitHub gives it out. */
  GITHUB_APP_PRIVATE_KEY: optional,
  GITHUB_WEBHOOK_SECRET: optional,
  GITHUB_API_URL: z.url().default('https://api.github.com'),
})

const OF_GITHUB_APP = ['GITHUB_APP_ID', 'GITHUB_APP_PRIVATE_KEY', 'GITHUB_WEBHOOK_SECRET'] as const

const SharedConfig = z.object({
  ...GithubConfig.shape,
  /** Paths are put right behind it. */
  BASE_URL: z.url().transform((url) => url.replace(/\/+$/, '')),
  DEFAULT_PLAN: z.enum(PLANS).default('enterprise'),
  DATABASE_URL: z.string().regex(/^postgres(ql)?:\/\//),
  /** Base URL of a Neon-compatible proxy in front of Postgres; empty where Neon itself is the database. */
  NEON_PROXY: optional,
  /** The same for the databases of the driver `neon`. */
  ENGINE_NEON_PROXY: optional,
  ENCRYPTION_KEY: z
    .string()
    .regex(
      /^\s*\w+:[A-Za-z0-9+/]{43}=\s*(,\s*\w+:[A-Za-z0-9+/]{43}=\s*)*$/,
      'must be <id>:<base64 of 32 bytes>, several separated by commas',
    ),
  S3_ENDPOINT: z.url(),
  /** Where clients of presigned URLs reach the bucket; S3_ENDPOINT when empty. */
  S3_PUBLIC_ENDPOINT: z
    .url()
    .optional()
    .or(z.literal('').transform(() => undefined)),
  S3_REGION: z.string().min(1).default('auto'),
  S3_BUCKET: z.string().min(1),
  S3_ACCESS_KEY_ID: z.string().min(1),
  S3_SECRET_ACCESS_KEY: z.string().min(1),
  /** Below it each project has a host of its own, `{ref}.{PROJECT_DOMAIN}`; `{BASE_URL}/p/{ref}` always works. */
  PROJECT_DOMAIN: optional,
  /** The header in which the front server tells the caller's address; empty where callers connect directly. */
  CLIENT_ADDRESS_HEADER: optional,
  /** When the operator works on the installation: a day, its time in UTC and how many minutes. */
  MAINTENANCE_WINDOW: optional.pipe(WrittenWindow.optional()),
  /** On the free plan, a database stops after so long without a session, and wakes with the next; 0 for never. */
  SLEEP_AFTER_MINUTES: minutes.default(15),
  /** The same on the other plans. */
  PAID_SLEEP_AFTER_MINUTES: minutes.default(0),
  /** How long SQL sent through the API may run. */
  SQL_TIMEOUT_SECONDS: z.coerce.number().int().min(1).max(300).default(60),
  /** For each MiB of a JSON body, and for each 64 KiB of any other. */
  BODY_TIMEOUT_SECONDS: z.coerce.number().int().min(1).max(300).default(60),
  /** DNS-over-HTTPS in its JSON form: decides where webhooks may go. */
  WEBHOOK_DNS_URL: z.url().default('https://cloudflare-dns.com/dns-query'),
  /** Development: receivers on this machine are allowed. */
  WEBHOOK_LOOPBACK: flag,
  /** For the whole answer of a receiver, its body included. */
  WEBHOOK_TIMEOUT_SECONDS: z.coerce.number().int().min(1).max(20).default(20),
  /** So long after a change of the secret, deliveries are signed with the old one too. */
  WEBHOOK_ROTATION_HOURS: z.coerce.number().int().min(0).max(168).default(24),
  /** An endpoint that failed without a success for so long is disabled; 0 for never. */
  WEBHOOK_DISABLE_AFTER_DAYS: z.coerce.number().int().min(0).max(14).default(0),
  /** Of VPC Lattice, with commas between: `<database identifier>=<arn>`, or an ARN alone for the cluster of all projects. */
  PRIVATE_LINK_RESOURCE_CONFIGURATIONS: optional
    .transform((list) => list?.replaceAll(/\s/g, ''))
    .pipe(z.string().regex(RESOURCE_CONFIGURATIONS, 'must be ARNs of VPC Lattice resource configurations').optional()),
  /** Who shares these by AWS RAM. */
  PRIVATE_LINK_AWS_ACCESS_KEY_ID: optional,
  PRIVATE_LINK_AWS_SECRET_ACCESS_KEY: optional,
  /** Instead of AWS RAM in the region of the resource configuration. */
  PRIVATE_LINK_RAM_URL: z
    .url()
    .optional()
    .or(z.literal('').transform(() => undefined)),
  /** `npm start` sets this: no other Worker does tasks, so those that are not this one's own have lost their holder. */
  SOLE_WORKER: flag,
  /** Opens /metrics; without it there are no metrics. */
  METRICS_TOKEN: optional.pipe(
    z.string().min(32, 'must have at least 32 characters: `openssl rand -hex 32` makes one').optional(),
  ),
})

const hostOf = (url: string): string => URL.parse(url)?.hostname ?? ''

const PRIVATE_LINK = [
  'PRIVATE_LINK_RESOURCE_CONFIGURATIONS',
  'PRIVATE_LINK_AWS_ACCESS_KEY_ID',
  'PRIVATE_LINK_AWS_SECRET_ACCESS_KEY',
] as const

/** Settings of which each is of use with the others alone. */
const OF_HOST = ['HOST_URL', 'HOST_KEY', 'DATABASE_HOST', 'DATABASE_PORT'] as const

const TOGETHER = { 'private link': PRIVATE_LINK, 'the GitHub App': OF_GITHUB_APP }

/** Every variable and secret that the Worker reads. README, Settings, says what each is for. */
export const Config = SharedConfig.superRefine((config, check) => {
  for (const [what, names] of Object.entries(TOGETHER)) {
    const missing = names.filter((name) => config[name] === undefined)
    if (missing.length === names.length) continue
    for (const name of missing) check.addIssue({ code: 'custom', path: [name], message: `is missing for ${what}` })
  }
})
  .and(EngineConfig)
  .superRefine(({ DATABASE_URL, NEON_PROXY }, check) => {
    if (NEON_PROXY !== undefined || hostOf(DATABASE_URL).endsWith('.neon.tech')) return
    // The driver would send the connection string to another host of the same domain.
    const message = 'is missing: DATABASE_URL does not lead to Neon'
    check.addIssue({ code: 'custom', path: ['NEON_PROXY'], message })
  })
  .superRefine((config, check) => {
    const missing = config.ENGINE === 'host' ? OF_HOST.filter((name) => config[name] === undefined) : []
    if (missing.length === OF_HOST.length) return
    for (const name of missing)
      check.addIssue({ code: 'custom', path: [name], message: 'is missing for the database host' })
  })
export type Config = z.output<typeof Config>

const parsed = new WeakMap<object, Config>()

/** Parses the settings once per isolate. Throws an error that names each wrong setting; every request then answers 500. */
export function readConfig(bindings: object): Config {
  const known = parsed.get(bindings)
  if (known) return known
  const result = Config.safeParse(bindings)
  if (!result.success) throw new Error(`settings: ${z.prettifyError(result.error).replaceAll('\n', ' ')}`)
  parsed.set(bindings, result.data)
  return result.data
}
