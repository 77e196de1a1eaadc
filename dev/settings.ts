import { isIP } from 'node:net'
import { resolve } from 'node:path'
import { LOG_FORMATS, type LogFormat } from './log-output.ts'
import { CLI_PORT, LOOPBACK, PORT_SETTINGS } from './ports.ts'
import { StartError } from './start-error.ts'

export interface Settings {
  folder: string
  baseUrl: string
  ports: Record<keyof typeof PORT_SETTINGS, number>
  /** Whether databases are also served at the port of the `supabase` CLI: not if POSTGRES_PORT is set, or another setting names it. */
  isForCli: boolean
  /** The address that the gateway to all databases listens on, besides 127.0.0.1. */
  postgresAddress: string
  logFormat: LogFormat
  /** Settings of the Worker, which validates them itself. */
  vars: Record<string, string>
}

const WORKER_SETTINGS = [
  'BASE_URL',
  'SQL_TIMEOUT_SECONDS',
  'BODY_TIMEOUT_SECONDS',
  'DATABASE_HOST',
  'DATABASE_PORT',
  'DATABASE_DOMAIN',
  'SLEEP_AFTER_MINUTES',
  'PAID_SLEEP_AFTER_MINUTES',
  'PROJECT_DOMAIN',
  'CLIENT_ADDRESS_HEADER',
  'MAINTENANCE_WINDOW',
  'METRICS_TOKEN',
  'WEBHOOK_DNS_URL',
  'WEBHOOK_LOOPBACK',
  'WEBHOOK_TIMEOUT_SECONDS',
  'WEBHOOK_ROTATION_HOURS',
  'WEBHOOK_DISABLE_AFTER_DAYS',
  'PRIVATE_LINK_RESOURCE_CONFIGURATIONS',
  'PRIVATE_LINK_AWS_ACCESS_KEY_ID',
  'PRIVATE_LINK_AWS_SECRET_ACCESS_KEY',
  'PRIVATE_LINK_RAM_URL',
  'GITHUB_APP_ID',
  'GITHUB_APP_PRIVATE_KEY',
  'GITHUB_WEBHOOK_SECRET',
  'GITHUB_API_URL',
  'NPM_REGISTRY_URL',
  'JSR_REGISTRY_URL',
  'IMPORT_LOOPBACK',
  'S3_PUBLIC_ENDPOINT',
]

const PORTS = { api: 8787, postgres: 54322, proxy: 54330, s3: 54331 }

/** Reads the settings of a start on one machine from the environment; docs/configuration.md lists them. */
export function readSettings(env: NodeJS.ProcessEnv, isTerminal = process.stdout.isTTY): Settings {
  const ports = { ...PORTS }
  for (const service of Object.keys(PORTS) as (keyof typeof PORTS)[]) {
    ports[service] = readPort(env, PORT_SETTINGS[service], PORTS[service])
  }
  return {
    folder: resolve(env.PILOTHOUSE_DATA || '.local'),
    baseUrl: env.BASE_URL?.replace(/\/+$/, '') || `http://127.0.0.1:${ports.api}`,
    ports,
    isForCli: !env.POSTGRES_PORT && !Object.values(ports).includes(CLI_PORT),
    postgresAddress: readPostgresAddress(env),
    logFormat: readLogFormat(env.LOG_FORMAT || (isTerminal ? 'text' : 'json')),
    vars: Object.fromEntries(WORKER_SETTINGS.flatMap((name) => (env[name] ? [[name, env[name]]] : []))),
  }
}

const WARNINGS = [
  ['WEBHOOK_LOOPBACK', 'Webhooks may be sent to this machine'],
  ['IMPORT_LOOPBACK', 'Functions may import modules from this machine'],
] as const

/** Warnings about settings that are unsafe in production. */
export function warningsOf({ vars }: Pick<Settings, 'vars'>): string[] {
  return WARNINGS.flatMap(([name, text]) => (vars[name] === 'on' ? [`${text} (${name}=on): not for production.`] : []))
}

function readLogFormat(name: string): LogFormat {
  const format = LOG_FORMATS.find((known) => known === name)
  if (format) return format
  throw new StartError(`LOG_FORMAT=${name} is not a format: give ${LOG_FORMATS.join(' or ')}.`)
}

/** Clients on other machines need a name: without one, the API would tell them an address of this machine alone. */
function readPostgresAddress({ POSTGRES_ADDRESS: address, DATABASE_HOST }: NodeJS.ProcessEnv): string {
  if (!address) return LOOPBACK
  if (isIP(address) === 0) throw new StartError(`POSTGRES_ADDRESS=${address} is not an IP address.`)
  if (!DATABASE_HOST)
    throw new StartError('POSTGRES_ADDRESS needs DATABASE_HOST, the name under which clients reach the databases.')
  return address
}

function readPort(env: NodeJS.ProcessEnv, name: string, fallback: number): number {
  const text = env[name]
  if (!text) return fallback
  const port = Number(text)
  if (Number.isInteger(port) && port > 0 && port < 65_536) return port
  throw new StartError(`${name}=${text} is not a port: give a number from 1 to 65535.`)
}
