import { randomBytes } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { errorCode, StartError } from './start-error.ts'

const NAMES = [
  'ENCRYPTION_KEY',
  'CONTROL_PASSWORD',
  'HOST_KEY',
  'ARCHIVE_KEY',
  'S3_ACCESS_KEY_ID',
  'S3_SECRET_ACCESS_KEY',
] as const

/** The secrets of a data folder; without them its data cannot be read. */
export type LocalSecrets = Record<(typeof NAMES)[number], string>

/** Reads the secrets of a data folder; creates them if the folder is new and has none. */
export async function readSecrets(folder: string, { isNew }: { isNew: boolean }): Promise<LocalSecrets> {
  const file = join(folder, 'secrets.json')
  try {
    return checkSecrets(JSON.parse(await readFile(file, 'utf8')))
  } catch (error) {
    // New secrets for old data would lock everyone out of it.
    if (isNew && errorCode(error) === 'ENOENT') return createSecrets(file)
    if (errorCode(error) === 'EACCES') {
      throw new StartError(`This user may not read ${file}: start as the user who owns it.`)
    }
    const reason = errorCode(error) === 'ENOENT' ? 'is missing' : 'is damaged'
    throw new StartError(
      `${file} ${reason}: put it back from a backup; without it, the data in ${folder} cannot be opened.`,
    )
  }
}

export function checkSecrets(value: unknown): LocalSecrets {
  const known = value as Partial<LocalSecrets>
  if (NAMES.some((name) => typeof known[name] !== 'string')) throw new Error('incomplete')
  return known as LocalSecrets
}

async function createSecrets(file: string): Promise<LocalSecrets> {
  const secrets: LocalSecrets = {
    ENCRYPTION_KEY: `k1:${randomBytes(32).toString('base64')}`,
    CONTROL_PASSWORD: randomBytes(24).toString('hex'),
    HOST_KEY: randomBytes(32).toString('hex'),
    ARCHIVE_KEY: randomBytes(32).toString('hex'),
    S3_ACCESS_KEY_ID: randomBytes(10).toString('hex'),
    S3_SECRET_ACCESS_KEY: randomBytes(24).toString('hex'),
  }
  await writeFile(file, `${JSON.stringify(secrets, null, 2)}\n`, { mode: 0o600, flag: 'wx' })
  return secrets
}
