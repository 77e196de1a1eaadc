import { readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { hashToken } from '../src/access/token.ts'
import { withClient } from './control-database.ts'
import { errorCode } from './start-error.ts'
import type { Credentials } from './start-output.ts'

export const CREDENTIALS = 'credentials.json'
/** Temporary file that replaces CREDENTIALS when it is complete. */
const NEW_CREDENTIALS = 'credentials.json.new'

interface Options {
  folder: string
  controlUrl: string
  baseUrl: string
  databasePort: number
  hostUrl: string
  s3Url: string
  onLine(line: string): void
}

/** Writes the owner's credentials to the folder. `isNew` tells whether the token was issued by this start. */
export async function saveCredentials({ folder, controlUrl, baseUrl, databasePort, hostUrl, s3Url, onLine }: Options) {
  const [file, written] = [join(folder, CREDENTIALS), join(folder, NEW_CREDENTIALS)]
  const known = await readKnown(file, onLine)
  const seeded = known && (await tokenWorks(controlUrl, known.access_token)) ? known : await seed()
  const places = { database_port: databasePort, host_url: hostUrl, s3_url: s3Url }
  const credentials: Credentials = { base_url: baseUrl, ...seeded, ...places }
  // An interrupted start or a full disk must not leave an incomplete file.
  await writeFile(written, `${JSON.stringify(credentials, null, 2)}\n`, { mode: 0o600, flush: true })
  await rename(written, file)
  return { credentials, isNew: seeded !== known }

  async function seed() {
    // Loaded late, because the query builder is slow to load and a later start does not need it.
    const { seedOwner } = await import('./seed.ts')
    return seedOwner({ controlUrl, knownToken: known?.access_token, onLine })
  }
}

const tokenWorks = (controlUrl: string, token: string): Promise<boolean> =>
  withClient(controlUrl, async (client) => {
    const hash = await hashToken(token)
    const { rowCount } = await client.query('select from access_tokens where hash = $1 and revoked_at is null', [hash])
    return rowCount === 1
  })

/** The addresses of the last start, whose ports may differ from the present settings. Empty if there was no start. */
export async function readCredentials(folder: string): Promise<Partial<Credentials>> {
  const text = await readFile(join(folder, CREDENTIALS), 'utf8').catch(() => '{}')
  try {
    return JSON.parse(text) ?? {}
  } catch {
    return {}
  }
}

type Known = Pick<Credentials, 'access_token' | 'organization_slug'>

/** Reads what the last start has issued. A damaged file is no error, because a new token can replace the old one. */
async function readKnown(file: string, onLine: Options['onLine']): Promise<Known | undefined> {
  const text = await readFile(file, 'utf8').catch((error) => {
    if (errorCode(error) === 'ENOENT') return undefined
    throw error
  })
  if (text === undefined) return undefined
  try {
    const { access_token, organization_slug } = JSON.parse(text)
    if (typeof access_token === 'string' && typeof organization_slug === 'string')
      return { access_token, organization_slug }
  } catch {}
  onLine(`${file} is damaged: a new access token was issued; the old one works until it is revoked.`)
  return undefined
}
