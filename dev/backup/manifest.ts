import { createHash } from 'node:crypto'
import * as z from 'zod'
import { MissingObject } from '../../host/backups/errors.ts'
import { StartError } from '../start-error.ts'
import type { BackupPlace } from './place.ts'

const MANIFEST = 'manifest.json'
/** File with a JSON line for each stored object. */
export const OBJECTS = 'objects.jsonl'
export const KEYS = 'keys.json'
/** Prefix of the bucket's objects, which keep their own keys below it. */
export const BUCKET_PREFIX = 'bucket/'

const Sum = z.strictObject({ bytes: z.int(), sha256: z.string() })
export type Sum = z.output<typeof Sum>

const StoredInstance = z.strictObject({
  /** A project's reference, or `control`. */
  name: z.string(),
  /** The base backup that its recovery starts from. */
  backup: z.string(),
  isPaused: z.boolean(),
  /** The instance as the host creates it: version, size, settings, access rules. */
  spec: z.record(z.string(), z.unknown()),
})
export type StoredInstance = z.output<typeof StoredInstance>

const Manifest = z.strictObject({
  format: z.literal(1),
  /** The version of Pilothouse that wrote the backup. */
  version: z.string(),
  /** Time at which the newest migration of the control database was written. */
  migration: z.int(),
  /** Operating system and processor: data of Postgres can be read only on the same ones. */
  system: z.string(),
  at: z.iso.datetime(),
  instances: z.array(StoredInstance),
  objects: z.strictObject({ count: z.int(), bytes: z.int() }),
  files: z.strictObject({ [OBJECTS]: Sum, [KEYS]: Sum }),
})
export type Manifest = z.output<typeof Manifest>

export const StoredObject = z.strictObject({ key: z.string(), ...Sum.shape })
export type StoredObject = z.output<typeof StoredObject>

export const SYSTEM = `${process.platform}-${process.arch}`

const sha256 = (text: string) => createHash('sha256').update(text).digest('hex')

/** Writes the manifest, which must come last: a backup without one is incomplete. */
export async function writeManifest(place: BackupPlace, manifest: Manifest): Promise<void> {
  const text = JSON.stringify({ manifest, sha256: sha256(JSON.stringify(manifest)) }, null, 2)
  await place.put(MANIFEST, chunks(`${text}\n`))
}

export async function readManifest(place: BackupPlace): Promise<Manifest> {
  const text = await textOf(place.get(MANIFEST)).catch((error) => {
    if (!(error instanceof MissingObject)) throw error
    throw new StartError(`This is not a complete backup: it has no ${MANIFEST}.`)
  })
  const { manifest, sha256: sum } = parseManifest(text)
  if (sum !== sha256(JSON.stringify(manifest))) throw damaged(MANIFEST)
  const { success, data } = Manifest.safeParse(manifest)
  if (success) return data
  throw new StartError('This backup was made by another version of Pilothouse, whose format this version cannot read.')
}

function parseManifest(text: string): { manifest?: unknown; sha256?: unknown } {
  try {
    return Object(JSON.parse(text))
  } catch {
    throw damaged(MANIFEST)
  }
}

export const damaged = (file: string) => new StartError(`The backup is damaged: ${file} is not what was stored.`)

export async function textOf(source: AsyncIterable<Uint8Array>): Promise<string> {
  const parts: Uint8Array[] = []
  for await (const part of source) parts.push(part)
  return Buffer.concat(parts).toString()
}

export async function* chunks(text: string): AsyncGenerator<Uint8Array> {
  yield Buffer.from(text)
}
