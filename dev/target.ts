import { type HostAddress, LOCAL } from '../src/engine/host/directory.ts'
import { controlUrlOf } from './control-database.ts'
import { readCredentials } from './credentials.ts'
import { isNewFolder } from './data-folder.ts'
import { readSecrets } from './secrets.ts'
import { readSettings } from './settings.ts'
import { StartError } from './start-error.ts'

/** The control database that a command works on: DATABASE_URL if set, else the one that `npm start` runs here. */
export async function targetDatabaseUrl(env: NodeJS.ProcessEnv): Promise<string> {
  if (env.DATABASE_URL) return env.DATABASE_URL
  const { folder, ports } = readSettings(env)
  if (await isNewFolder(folder)) {
    throw new StartError(`Set DATABASE_URL, or run \`npm start\` first: ${folder} holds no local control database.`)
  }
  const { database_port: started } = await readCredentials(folder)
  const { CONTROL_PASSWORD } = await readSecrets(folder, { isNew: false })
  return controlUrlOf(env.POSTGRES_PORT ? ports.postgres : (started ?? ports.postgres), CONTROL_PASSWORD)
}

/** The encryption key of that database. */
export async function targetEncryptionKey(env: NodeJS.ProcessEnv): Promise<string> {
  if (env.ENCRYPTION_KEY) return env.ENCRYPTION_KEY
  if (env.DATABASE_URL)
    throw new StartError('Set ENCRYPTION_KEY too, to the value that the Worker of DATABASE_URL has.')
  return (await readSecrets(readSettings(env).folder, { isNew: false })).ENCRYPTION_KEY
}

/** Reports why a secret of that database cannot be opened. Web Crypto's own error, a DOMException, does not say why. */
export function refuseEncryptionKey(error: unknown): never {
  if (error instanceof Error && !(error instanceof DOMException)) throw new StartError(`${error.message}.`)
  throw new StartError('ENCRYPTION_KEY is not the one that the Worker of this database has.')
}

/** The host in the settings: HOST_URL and HOST_KEY if set, else the one that `npm start` runs here; undefined if there is none. */
export async function targetHost(env: NodeJS.ProcessEnv): Promise<HostAddress | undefined> {
  const { folder, ports } = readSettings(env)
  const isHere = !env.HOST_URL && !env.DATABASE_URL
  const started = env.PROXY_PORT ? undefined : (await readCredentials(folder)).host_url
  const url = isHere ? (started ?? `http://127.0.0.1:${ports.proxy}`) : env.HOST_URL?.replace(/\/+$/, '')
  const key = isHere ? (await readSecrets(folder, { isNew: false })).HOST_KEY : env.HOST_KEY
  return url && key ? { id: LOCAL, url, key, databaseHost: '', databasePort: 0 } : undefined
}
