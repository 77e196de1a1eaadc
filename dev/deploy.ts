import { execFileSync } from 'node:child_process'
import { unstable_readConfig } from 'wrangler'
import { migrateControlDatabase } from './control-database.ts'
import { describeFailure } from './lifetime.ts'
import { StartError } from './start-error.ts'

const BUILDER_CONFIG = 'src/builder/wrangler.toml'
const SECRETS = ['DATABASE_URL', 'ENCRYPTION_KEY', 'S3_ACCESS_KEY_ID', 'S3_SECRET_ACCESS_KEY']
const VARIABLES = ['BASE_URL', 'S3_ENDPOINT']
const OF_ENGINE = {
  postgres: { secrets: ['ENGINE_URL'], variables: ['DATABASE_HOST', 'DATABASE_PORT'] },
  neon: { secrets: ['NEON_API_KEY'], variables: [] },
}

/** Refuses to deploy what could not run; then migrations first, as the new code needs them and the old bears them. */
async function deploy(): Promise<void> {
  const { DATABASE_URL } = process.env
  if (!DATABASE_URL) throw new StartError('Set DATABASE_URL to the control database: its migrations run first.')
  const { vars } = unstable_readConfig({ config: 'wrangler.toml' })
  const engine = OF_ENGINE[vars.ENGINE === 'neon' ? 'neon' : 'postgres']
  const unset = [...VARIABLES, ...engine.variables].filter((name) => !vars[name])
  if (unset.length > 0) throw new StartError(`wrangler.toml, [vars], lacks ${unset.join(', ')} (README, Settings).`)
  if (vars.WEBHOOK_LOOPBACK === 'on') {
    throw new StartError('wrangler.toml, [vars], has WEBHOOK_LOOPBACK="on": that is for development, take it out.')
  }
  if (unstable_readConfig({ config: BUILDER_CONFIG }).vars.IMPORT_LOOPBACK === 'on') {
    throw new StartError(`${BUILDER_CONFIG}, [vars], has IMPORT_LOOPBACK="on": that is for development, take it out.`)
  }
  const missing = [...SECRETS, ...engine.secrets].filter((name) => !deployedSecrets().includes(name))
  if (missing.length > 0) {
    throw new StartError(`The Worker lacks secrets: ${missing.map((name) => `wrangler secret put ${name}`).join('; ')}`)
  }
  await migrateControlDatabase(DATABASE_URL)
  // The builder first: the other one is bound to it.
  for (const config of [BUILDER_CONFIG, 'wrangler.toml']) {
    execFileSync('wrangler', ['deploy', '--config', config, ...process.argv.slice(2)], { stdio: 'inherit' })
  }
}

function deployedSecrets(): string[] {
  const listed = execFileSync('wrangler', ['secret', 'list', '--format', 'json'], { encoding: 'utf8' })
  return (JSON.parse(listed) as { name: string }[]).map(({ name }) => name)
}

deploy().catch((error) => {
  console.error(describeFailure(error))
  process.exitCode = 1
})
