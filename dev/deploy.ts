import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { parse as parseToml } from 'smol-toml'
import * as z from 'zod'
import { Settings as BuilderSettings } from '../src/builder/settings.ts'
import { Config, withoutEmpty } from '../src/config.ts'
import { settingProblem } from '../src/platform/setting-problem.ts'
import { BUILDER_CONFIG, CONFIG } from './bundle.ts'
import { createResource, missingResources, neededResources, QueueConfig, wrangler } from './cloud-resources.ts'
import { migrateControlDatabase } from './control-database.ts'
import { databaseProblem } from './database-problem.ts'
import { readFlags } from './flags.ts'
import { describeFailure } from './lifetime.ts'
import { errorMessage, StartError } from './start-error.ts'
import { PLACEHOLDERS } from './worker-settings.ts'

const VARS = 'wrangler.toml, [vars] (docs/configuration.md):'
const SECRETS = ['DATABASE_URL', 'ENCRYPTION_KEY', 'S3_ACCESS_KEY_ID', 'S3_SECRET_ACCESS_KEY']

/**
 * Deploys after checking settings and secrets. Migrations run first: the new code needs them, and the old code works with them.
 * With `--dry-run` it checks everything and prints what it would do.
 */
async function deploy(): Promise<void> {
  const flags = readFlags('npm run deploy', ['--dry-run'])
  const { DATABASE_URL } = process.env
  if (!DATABASE_URL) throw new StartError('Set DATABASE_URL to the control database: its migrations run first.')
  const isDry = flags.has('--dry-run')
  const { queues, ...config } = readConfiguration(CONFIG)
  const vars: Record<string, unknown> = { ...withoutEmpty(config.vars) }
  if (vars.WEBHOOK_LOOPBACK === 'on') {
    throw new StartError('wrangler.toml, [vars], has WEBHOOK_LOOPBACK="on": that is for development, take it out.')
  }
  const builder = readConfiguration(BUILDER_CONFIG)
  if (builder.vars.IMPORT_LOOPBACK === 'on') {
    throw new StartError(`${BUILDER_CONFIG}, [vars], has IMPORT_LOOPBACK="on": that is for development, take it out.`)
  }
  checkGiven(vars, DATABASE_URL)
  checkSettings(BUILDER_CONFIG, BuilderSettings, builder.vars)
  const secrets = deployedSecrets()
  const missingSecrets = requiredSecrets(vars).filter((name) => !secrets.includes(name))
  if (missingSecrets.length > 0) {
    throw new StartError(
      `The Worker lacks secrets: ${missingSecrets.map((name) => `wrangler secret put ${name}`).join('; ')}`,
    )
  }
  const settings = {
    ...vars,
    ...Object.fromEntries(secrets.map((name) => [name, PLACEHOLDERS[name] ?? 'set'])),
    DATABASE_URL,
  }
  checkSettings('wrangler.toml', Config, settings)
  const missing = missingResources(neededResources(queues, vars))
  for (const resource of missing) {
    console.log(isDry ? `Would create the ${resource.title}` : `Creating the ${resource.title}`)
    if (!isDry) createResource(resource)
  }
  console.log(isDry ? 'Would migrate the control database' : 'Migrating the control database')
  if (!isDry) await migrateControlDatabase(DATABASE_URL).catch(refuseDatabase)
  // The builder comes first, because the other Worker is bound to it.
  for (const config of [BUILDER_CONFIG, CONFIG]) {
    execFileSync('wrangler', ['deploy', '--config', config, ...flags], { stdio: 'inherit' })
  }
}

/** The parts of a configuration file that this command reads. The reader of wrangler takes seconds to load. */
const Configuration = z.object({
  vars: z.record(z.string(), z.unknown()).default({}),
  queues: QueueConfig.default({}),
})

function readConfiguration(file: string): z.output<typeof Configuration> {
  try {
    return Configuration.parse(parseToml(readFileSync(file, 'utf8')))
  } catch (error) {
    throw new StartError(`${file}: ${error instanceof z.ZodError ? z.prettifyError(error) : errorMessage(error)}`)
  }
}

/** Checks what is known before Cloudflare is asked for the names of the secrets. */
function checkGiven(vars: Record<string, unknown>, DATABASE_URL: string): void {
  const given = { ...vars, DATABASE_URL }
  const { error } = Config.safeParse({ ...PLACEHOLDERS, ...given })
  const issue = error?.issues.find(({ path }) => String(path[0]) in given)
  if (!issue) return
  const problem = settingProblem(issue, given)
  throw new StartError(issue.path[0] === 'DATABASE_URL' ? problem : `${VARS}\n${problem}`)
}

function checkSettings(file: string, schema: z.ZodType, settings: Record<string, unknown>): void {
  const { error } = schema.safeParse(settings)
  if (error) throw new StartError(`${file}, [vars] (docs/configuration.md):\n${z.prettifyError(error)}`)
}

/** Names the secrets that the settings require. An installation whose hosts are all registered has neither HOST_URL nor HOST_KEY. */
function requiredSecrets({ ENGINE, HOST_URL }: Record<string, unknown>): string[] {
  if (ENGINE === 'neon') return [...SECRETS, 'NEON_API_KEY']
  return HOST_URL ? [...SECRETS, 'HOST_KEY'] : SECRETS
}

/** Matches Cloudflare's answer for a Worker that was never deployed. */
const NO_SUCH_WORKER = /10007|does not exist|not found/i

function deployedSecrets(): string[] {
  const { status, output, stdout } = wrangler(['secret', 'list', '--format', 'json'])
  if (status === 0) return (JSON.parse(stdout) as { name: string }[]).map(({ name }) => name)
  if (NO_SUCH_WORKER.test(output)) return []
  throw new StartError(`wrangler secret list failed:\n${output}`)
}

function refuseDatabase(error: unknown): never {
  throw databaseProblem(error, 'Its address is that of DATABASE_URL.')
}

deploy().catch((error) => {
  console.error(describeFailure(error))
  process.exitCode = 1
})
