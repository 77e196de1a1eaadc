import { parse as parseToml } from 'smol-toml'
import * as z from 'zod'
import { Issues } from './issues.ts'
import { readJson } from './json.ts'
import { Problem } from './problem.ts'
import { type Source, textOf } from './source.ts'

const Config = z.looseObject({ main: z.string().optional(), vars: z.record(z.string(), z.json()).default({}) })
type Config = z.output<typeof Config>

const FILES = ['wrangler.jsonc', 'wrangler.json', 'wrangler.toml']

/** The settings of the first file of wrangler's that is there. */
export function readWrangler(source: Source): (Config & { file: string }) | undefined {
  const file = FILES.find((name) => source.has(name))
  if (file === undefined) return undefined
  return { ...(file.endsWith('.toml') ? readToml(source, file) : readJson(source, file, Config)), file }
}

function readToml(source: Source, file: string): Config {
  try {
    return Config.parse(parseToml(textOf(source.get(file))))
  } catch (error) {
    throw new Problem(`It cannot be read: ${error instanceof Error ? error.message : String(error)}`, { file })
  }
}

/** What a worker would miss while it runs. */
const NOT_OFFERED: Readonly<Record<string, string>> = {
  assets: 'import the files, or put them into storage',
  site: 'import the files, or put them into storage',
  triggers: 'nothing calls a worker by the clock: let something else call it',
  durable_objects: 'keep state in the database at SUPABASE_DB_URL',
  kv_namespaces: 'keep data in the database at SUPABASE_DB_URL',
  d1_databases: 'use the database at SUPABASE_DB_URL',
  hyperdrive: 'use the database at SUPABASE_DB_URL',
  r2_buckets: 'use the storage of the project',
  services: 'call the address of the other worker',
  ...Object.fromEntries(
    [
      ...['ai', 'ai_search', 'analytics_engine_datasets', 'browser', 'containers', 'dispatch_namespaces', 'images'],
      ...['media', 'mtls_certificates', 'pipelines', 'queues', 'ratelimits', 'secrets_store_secrets', 'send_email'],
      ...['tail_consumers', 'unsafe', 'vectorize', 'version_metadata', 'vpc_services', 'worker_loaders', 'workflows'],
    ].map((name) => [name, 'remove it']),
  ),
}

/** The `vars` of a worker. Throws Issues that name each setting that is not offered. */
export function varsOf(source: Source): Config['vars'] {
  const { file, vars = {}, ...settings } = readWrangler(source) ?? {}
  const issues = Object.entries(NOT_OFFERED)
    .filter(([name]) => isSet(settings[name as keyof typeof settings]))
    .map(([name, advice]) => ({ message: `\`${name}\` is not offered for workers: ${advice}`, file }))
  if (issues.length > 0) throw new Issues(issues)
  return vars
}

/** Templates carry settings that are empty. */
function isSet(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return value !== undefined && value !== null && value !== false
  return Object.values(value).some(isSet)
}
