import { parse as parseToml } from 'smol-toml'
import * as z from 'zod'
import { cronProblem } from '../platform/cron-expression.ts'
import { HTML_HANDLINGS, NOT_FOUND_HANDLINGS } from './asset-manifest.ts'
import { Issues } from './build-issues.ts'
import { Problem } from './build-problem.ts'
import { readJson } from './json.ts'
import { LIMITS } from './limits.ts'
import type { Issue } from './protocol.ts'
import { type Source, textOf } from './source.ts'

const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]*$/

const Assets = z.looseObject({
  directory: z.string(),
  binding: z.string().regex(VARIABLE, 'must contain only letters, digits and _, and not begin with a digit').optional(),
  html_handling: z.enum(HTML_HANDLINGS).default('auto-trailing-slash'),
  not_found_handling: z.enum(NOT_FOUND_HANDLINGS).default('none'),
  run_worker_first: z
    .union([
      z.boolean(),
      z.array(z.string().max(LIMITS.assetRuleLength).regex(/^!?\//, 'must begin with / or !/')).max(LIMITS.assetRules),
    ])
    .default(false),
})
export interface AssetSettings extends z.output<typeof Assets> {
  /** Whether a program answers requests without an asset. */
  hasProgram: boolean
}

const Config = z.looseObject({
  main: z.string().optional(),
  vars: z.record(z.string(), z.json()).default({}),
  assets: Assets.optional(),
  triggers: z.looseObject({ crons: z.array(z.string()).max(LIMITS.crons).default([]) }).optional(),
})
type Config = z.output<typeof Config>

const FILES = ['wrangler.jsonc', 'wrangler.json', 'wrangler.toml']

/** Reads the first wrangler file that the source has. */
export function readWrangler(source: Source): (Config & { file: string }) | undefined {
  const file = FILES.find((name) => source.has(name))
  if (file === undefined) return undefined
  const settings = file.endsWith('.toml') ? readToml(source, file) : readJson(source, file, z.unknown())
  const { data, error } = Config.safeParse(withoutEmpty(settings))
  if (!data) throw new Problem(`Invalid settings: ${z.prettifyError(error).replaceAll('\n', ' ')}`, { file })
  return { ...data, file }
}

/** Removes empty sections, which templates often contain. */
function withoutEmpty(settings: unknown): unknown {
  if (typeof settings !== 'object' || settings === null) return settings
  return Object.fromEntries(Object.entries(settings).filter(([name, value]) => name === 'vars' || isSet(value)))
}

function readToml(source: Source, file: string): unknown {
  try {
    return parseToml(textOf(source.get(file)))
  } catch (error) {
    throw new Problem(`Invalid TOML: ${error instanceof Error ? error.message : String(error)}`, { file })
  }
}

/** Unsupported settings that a worker may depend on at run time, with advice. */
const UNSUPPORTED: Readonly<Record<string, string>> = {
  site: 'use `assets`',
  alias: 'import the target directly',
  define: 'use `vars`',
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

export interface WorkerSettings {
  vars: Config['vars']
  crons: string[]
  assets?: AssetSettings | undefined
}

/** Reads the settings of a worker's build. Throws Issues with all unsupported or invalid settings. */
export function workerSettings(source: Source, now: Date): WorkerSettings {
  const read = readWrangler(source)
  if (!read) return { vars: {}, crons: [] }
  const { file, ...config } = read
  const messages = [...unsupportedIssues(config), ...cronIssues(config, now), ...assetIssues(config)]
  if (messages.length > 0) throw new Issues(messages.map((message): Issue => ({ message, file })))
  const { vars, main, assets, triggers } = config
  return { vars, assets: assets && { ...assets, hasProgram: main !== undefined }, crons: [...new Set(triggers?.crons)] }
}

function unsupportedIssues(config: Config): string[] {
  const known = { assets: Object.keys(Assets.shape), triggers: ['crons'] }
  const unknown = Object.entries(known).flatMap(([section, names]) =>
    Object.keys(config[section] ?? {}).flatMap((name) =>
      names.includes(name) ? [] : [[`${section}.${name}`, 'remove it']],
    ),
  )
  const named = Object.entries(UNSUPPORTED).filter(([name]) => config[name] !== undefined)
  return [...named, ...unknown].map(([name, advice]) => `\`${name}\` is not supported for workers: ${advice}`)
}

const cronIssues = ({ triggers }: Config, now: Date): string[] =>
  (triggers?.crons ?? []).flatMap((expression, n) => {
    const problem = cronProblem(expression, now)
    return problem === undefined ? [] : [`\`triggers.crons[${n}]\` ${JSON.stringify(expression)} ${problem}`]
  })

function assetIssues({ main, vars, assets }: Config): string[] {
  const { binding, run_worker_first: isFirst } = assets ?? {}
  const issues: string[] = []
  if (binding !== undefined && Object.hasOwn(vars, binding))
    issues.push(`Invalid \`assets.binding\` ${binding}: \`vars\` has the same name`)
  if (main !== undefined) return issues
  if (binding !== undefined) issues.push('`assets.binding` requires a program: set `main`')
  if (isFirst) issues.push('`assets.run_worker_first` requires a program: set `main`')
  return issues
}

function isSet(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return value !== undefined && value !== null && value !== false
  return Object.values(value).some(isSet)
}
