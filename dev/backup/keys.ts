import { createCipheriv, createDecipheriv, randomBytes, scryptSync } from 'node:crypto'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import * as z from 'zod'
import { errorCode, StartError } from '../start-error.ts'

/** Paths of the key files in a data folder; without them the data of projects cannot be read. */
const FILES = ['secrets.json', 'credentials.json', 'host/tls/server.key', 'host/tls/server.crt'] as const

const Files = z.record(z.string(), z.string())
export type KeyFiles = z.output<typeof Files>

const Sealed = z.union([
  z.strictObject({ plaintext: Files }),
  z.strictObject({ cipher: z.literal('scrypt-aes-256-gcm'), salt: z.base64(), nonce: z.base64(), data: z.base64() }),
])

const SCRYPT = { N: 2 ** 17, r: 8, p: 1, maxmem: 2 ** 28 }
const TAG_BYTES = 16
const PASSPHRASE_MIN = 12

export async function readKeyFiles(folder: string): Promise<KeyFiles> {
  const read = async (name: string) => [name, await readFile(join(folder, name), 'utf8')]
  return Object.fromEntries(await Promise.all(FILES.map(read)))
}

export async function writeKeyFile(folder: string, keys: KeyFiles, name: (typeof FILES)[number]): Promise<void> {
  const file = join(folder, name)
  await mkdir(join(file, '..'), { recursive: true, mode: 0o700 })
  await writeFile(file, keys[name] ?? '', { mode: 0o600, flag: 'wx', flush: true })
}

/** Reads the passphrase from the key file or BACKUP_PASSPHRASE; undefined if neither is given. */
export async function readPassphrase(keyFile: string | undefined, env: NodeJS.ProcessEnv): Promise<string | undefined> {
  const text = keyFile === undefined ? env.BACKUP_PASSPHRASE : (await readKeyFile(keyFile)).trim()
  if (!text && keyFile === undefined) return undefined
  if (text && text.length >= PASSPHRASE_MIN) return text
  const name = keyFile ?? 'BACKUP_PASSPHRASE'
  throw new StartError(`${name} is too short: it must have at least ${PASSPHRASE_MIN} characters.`)
}

const readKeyFile = (file: string) =>
  readFile(file, 'utf8').catch((error) => {
    throw new StartError(`Cannot read the key file ${file} (${errorCode(error)}).`)
  })

/** Encrypts the key files with the passphrase; without one they are stored in plaintext. */
export function sealKeys(files: KeyFiles, passphrase: string | undefined): string {
  if (passphrase === undefined) return JSON.stringify({ plaintext: files })
  const [salt, nonce] = [randomBytes(16), randomBytes(12)]
  const cipher = createCipheriv('aes-256-gcm', scryptSync(passphrase, salt, 32, SCRYPT), nonce)
  const data = Buffer.concat([cipher.update(JSON.stringify(files)), cipher.final(), cipher.getAuthTag()])
  const encoded = { salt, nonce, data }
  const texts = Object.entries(encoded).map(([name, bytes]) => [name, bytes.toString('base64')])
  return JSON.stringify({ cipher: 'scrypt-aes-256-gcm', ...Object.fromEntries(texts) })
}

export function openKeys(text: string, passphrase: string | undefined): KeyFiles {
  const sealed = Sealed.parse(JSON.parse(text))
  if ('plaintext' in sealed) return sealed.plaintext
  if (passphrase === undefined)
    throw new StartError('The keys of this backup are encrypted: set BACKUP_PASSPHRASE or give --key-file.')
  const [salt, nonce, data] = [sealed.salt, sealed.nonce, sealed.data].map((part) => Buffer.from(part, 'base64'))
  if (!salt || !nonce || !data) throw new Error('unreachable: three parts were decoded')
  const decipher = createDecipheriv('aes-256-gcm', scryptSync(passphrase, salt, 32, SCRYPT), nonce)
  decipher.setAuthTag(data.subarray(-TAG_BYTES))
  const opened = decipher.update(data.subarray(0, -TAG_BYTES))
  try {
    return Files.parse(JSON.parse(Buffer.concat([opened, decipher.final()]).toString()))
  } catch {
    throw new StartError('The passphrase does not open the keys of this backup.')
  }
}
