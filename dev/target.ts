import { controlUrlOf } from './control-database.ts'
import { readSecrets } from './secrets.ts'
import { readSettings } from './settings.ts'
import { StartError } from './start-error.ts'

/** The control database that a command is for: DATABASE_URL if set, else the one that `npm start` runs here. */
export async function targetDatabaseUrl(env: NodeJS.ProcessEnv): Promise<string> {
  if (env.DATABASE_URL) return env.DATABASE_URL
  const { folder, ports } = readSettings(env)
  const { CONTROL_PASSWORD } = await readSecrets(folder, { isNew: false }).catch(() => {
    throw new StartError(`Set DATABASE_URL, or run \`npm start\` first: ${folder} holds no local control database.`)
  })
  return controlUrlOf(ports.postgres, CONTROL_PASSWORD)
}

/** What opens the secrets in that database. */
export async function targetEncryptionKey(env: NodeJS.ProcessEnv): Promise<string> {
  if (env.ENCRYPTION_KEY) return env.ENCRYPTION_KEY
  if (env.DATABASE_URL) throw new StartError('Set ENCRYPTION_KEY beside DATABASE_URL, to what the Worker there has.')
  return (await readSecrets(readSettings(env).folder, { isNew: false })).ENCRYPTION_KEY
}
