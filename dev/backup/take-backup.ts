import { sql } from 'drizzle-orm'
import { ARCHIVE_PREFIX } from '../../host/backups/archive.ts'
import { type ArchiveStore, s3Store } from '../../host/backups/store.ts'
import application from '../../package.json' with { type: 'json' }
import { hostApi } from '../../src/engine/host/client.ts'
import { hosts } from '../../src/model/tables/index.ts'
import { bucketSettings, s3EndpointAt } from '../bucket.ts'
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
  /** Encrypts the keys; undefined stores them in plaintext. */
  passphrase: string | undefined
  print(line: string): void
}

/** Backs up the installation that `npm start` runs here, as of one moment. Returns the projects that it had to leave out. */
export async function takeBackup({
  place,
  env,
  passphrase,
  print,
}: Options): Promise<{ at: string; leftOut: string[] }> {
  const { folder } = readSettings(env)
  if (place.folder !== undefined && `${place.folder}/`.startsWith(`${folder}/`))
    throw new StartError(`${place.folder} is in the data folder, which \`npm start -- --reset\` deletes: give another.`)
  if (!(await place.isEmpty())) throw new StartError('The place of the backup is not empty: give a new one.')
  const { store, api, controlUrl } = await openInstallation(env)
  const { db, close } = openControlDatabase(controlUrl)
  try {
    await requireOneHost(db)
    const hold = await holdRemovals(controlUrl)
    try {
      print('Databases: archiving one moment of all of them')
      const { at, instances, keys, leftOut } = await takeMoment(api)
      print(`Databases: ${instances.length} as of ${at.toISOString()}`)
      for (const [name, reason] of leftOut) print(`Project ${name}: left out (${reason})`)
      const { list, ...objects } = await copyIn(place, keysAt(store, { at, keys }), store.get)
      print(`Bucket: ${objects.count} objects, ${objects.bytes} bytes`)
      const sealed = chunks(sealKeys(await readKeyFiles(folder), passphrase))
      const keySum = await putSummed((body) => place.put(KEYS, body), sealed)
      const manifest: Manifest = {
        ...{ format: 1, version: application.version, migration: await newestMigration(db), system: SYSTEM },
        ...{ at: at.toISOString(), instances, objects },
        files: { [OBJECTS]: list, [KEYS]: keySum },
      }
      await hold.check()
      await writeManifest(place, manifest)
      return { at: manifest.at, leftOut: [...leftOut.keys()] }
    } finally {
      await removeTemporaryBackups(api).catch((error) =>
        print(`Base backups were left in the archive: ${error.message}`),
      )
      await hold.release()
    }
  } finally {
    await close()
  }
}

async function openInstallation(env: NodeJS.ProcessEnv) {
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
  const endpoint = env.S3_PORT ? s3EndpointAt(ports.s3) : s3_url
  if (!endpoint)
    throw new StartError(`The address of the bucket of ${folder} is unknown: start it once more with this version.`)
  return { store: s3Store(bucketSettings(endpoint, secrets)), api: hostApi(host, undefined), controlUrl }
}

/** Refuses installations with several hosts, whose archives may be in other buckets and whose clocks differ. */
async function requireOneHost(db: ControlDb): Promise<void> {
  const found = await db.select({ name: hosts.name }).from(hosts)
  if (found.length === 0) return
  const names = found.map(({ name }) => name).join(', ')
  throw new StartError(
    `Projects may be on other hosts (${names}): only installations on one machine are backed up as a whole. \`npm run admin -- hosts remove\` removes one without projects.`,
  )
}

async function newestMigration(db: ControlDb): Promise<number> {
  const { rows } = await db.execute<{ at: string }>(sql`select max(created_at) as at from drizzle.__drizzle_migrations`)
  return Number(rows[0]?.at)
}

/** Tolerance: the bucket rounds times down, and its clock may be slightly behind. */
const TOLERANCE_MS = 60_000

/**
 * Keys of the objects that rows of that moment can refer to, which were complete before it, and of the archived objects that
 * recovery to it needs.
 */
async function* keysAt(store: ArchiveStore, { at, keys }: { at: Date; keys: string[] }): AsyncGenerator<string> {
  const until = at.getTime() + TOLERANCE_MS
  for await (const { key, modifiedAt } of store.each('')) {
    if (!key.startsWith(ARCHIVE_PREFIX) && modifiedAt.getTime() <= until) yield key
  }
  yield* keys
}
