import { sql } from 'drizzle-orm'
import { type ArchiveStore, s3Store } from '../../host/backups/store.ts'
import application from '../../package.json' with { type: 'json' }
import { hostApi } from '../../src/engine/host/client.ts'
import { hosts } from '../../src/model/tables/index.ts'
import { bucketSettings } from '../bucket.ts'
import { readCredentials } from '../credentials.ts'
import { readSecrets } from '../secrets.ts'
import { type ControlDb, openControlDatabase } from '../seed.ts'
import { readSettings } from '../settings.ts'
import { StartError } from '../start-error.ts'
import { targetDatabaseUrl, targetHost } from '../target.ts'
import { copyIn, putSummed } from './copy.ts'
import { holdRemovals } from './hold-removals.ts'
import { readKeyFiles, sealKeys } from './keys.ts'
import { chunks, KEYS, type Manifest, OBJECTS, SYSTEM, writeManifest } from './manifest.ts'
import { removeTemporaryBackups, takeMoment } from './moment.ts'
import type { BackupPlace } from './place.ts'

interface Options {
  place: BackupPlace
  env: NodeJS.ProcessEnv
  /** Undefined stores the keys as they are. */
  passphrase: string | undefined
  say(line: string): void
}

/** Backs up the installation that `npm start` runs here, as of one moment. */
export async function takeBackup({ place, env, passphrase, say }: Options): Promise<Manifest> {
  if (!(await place.isEmpty())) throw new StartError('The place of the backup is not empty: give a new one.')
  const { folder } = readSettings(env)
  const { store, api, controlUrl } = await reach(env)
  const { db, close } = openControlDatabase(controlUrl)
  try {
    await requireOneHost(db)
    const hold = await holdRemovals(controlUrl)
    try {
      say('Databases: archiving one moment of all of them')
      const { at, instances, keys } = await takeMoment(api)
      say(`Databases: ${instances.length} as of ${at.toISOString()}`)
      const { list, ...objects } = await copyIn(place, keysAt(store, { at, keys }), store.get)
      say(`Bucket: ${objects.count} objects, ${objects.bytes} bytes`)
      const sealed = chunks(sealKeys(await readKeyFiles(folder), passphrase))
      const keySum = await putSummed((body) => place.put(KEYS, body), sealed)
      const manifest: Manifest = {
        ...{ format: 1, version: application.version, migration: await newestMigration(db), system: SYSTEM },
        ...{ at: at.toISOString(), instances, objects },
        files: { [OBJECTS]: list, [KEYS]: keySum },
      }
      await hold.check()
      await writeManifest(place, manifest)
      return manifest
    } finally {
      await removeTemporaryBackups(api).catch((error) => say(`Base backups were left in the archive: ${error.message}`))
      await hold.release()
    }
  } finally {
    await close()
  }
}

async function reach(env: NodeJS.ProcessEnv) {
  if (env.DATABASE_URL || env.HOST_URL)
    throw new StartError(
      'DATABASE_URL and HOST_URL are set: a backup is made of what `npm start` runs on this machine.',
    )
  const { folder, ports } = readSettings(env)
  const controlUrl = await targetDatabaseUrl(env)
  const host = await targetHost(env)
  if (!host) throw new Error('npm start has a host')
  const secrets = await readSecrets(folder, { isNew: false })
  const { s3_url } = await readCredentials(folder)
  const endpoint = env.S3_PORT ? `http://127.0.0.1:${ports.s3}/cdn-cgi/local/r2/s3` : s3_url
  if (!endpoint) throw new StartError(`${folder} says no address of its bucket: start it once more with this version.`)
  return { store: s3Store(bucketSettings(endpoint, secrets)), api: hostApi(host, undefined), controlUrl }
}

/** Archives of other hosts may be in other buckets, and their clocks differ. */
async function requireOneHost(db: ControlDb): Promise<void> {
  const found = await db.select({ name: hosts.name }).from(hosts)
  if (found.length === 0) return
  const names = found.map(({ name }) => name).join(', ')
  throw new StartError(
    `Projects may be on other hosts (${names}): only installations on one machine are backed up as a whole.`,
  )
}

async function newestMigration(db: ControlDb): Promise<number> {
  const { rows } = await db.execute<{ at: string }>(sql`select max(created_at) as at from drizzle.__drizzle_migrations`)
  return Number(rows[0]?.at)
}

/** The bucket rounds times down, and its clock may be a little behind. */
const SLACK_MS = 60_000

/**
 * All objects that rows of that moment can name, whose bytes were complete before, and those of the archive that recovery to it needs.
 */
async function* keysAt(store: ArchiveStore, { at, keys }: { at: Date; keys: string[] }): AsyncGenerator<string> {
  const until = at.getTime() + SLACK_MS
  for await (const { key, modifiedAt } of store.each('')) {
    if (!key.startsWith(ARCHIVE) && modifiedAt.getTime() <= until) yield key
  }
  yield* keys
}

const ARCHIVE = 'backups/'
