import { readdir } from 'node:fs/promises'
import journal from '../../drizzle/meta/_journal.json' with { type: 'json' }
import { checkSecrets } from '../secrets.ts'
import { errorCode, StartError } from '../start-error.ts'
import { verified } from './copy.ts'
import { openKeys } from './keys.ts'
import { KEYS, type Manifest, readManifest, SYSTEM, textOf } from './manifest.ts'
import type { BackupPlace } from './place.ts'

interface Options {
  place: BackupPlace
  folder: string
  passphrase: string | undefined
  print(line: string): void
}

/** Creates a data folder for `npm start` from a backup. Returns the projects whose databases could not be recovered. */
export async function restoreBackup({
  place,
  folder,
  passphrase,
  print,
}: Options): Promise<{ at: string; lost: string[] }> {
  await requireEmpty(folder)
  const manifest = await readManifest(place)
  requireReadable(manifest)
  const keys = openKeys(await textOf(verified(place, KEYS, manifest.files[KEYS])), passphrase)
  const secrets = checkSecrets(JSON.parse(keys['secrets.json'] ?? ''))
  // Loaded late because it is slow to load: a refused restore does not need it.
  const { makeDataFolder } = await import('./make-data-folder.ts')
  const lost = await makeDataFolder({ place, folder, manifest, keys, secrets, print })
  return { at: manifest.at, lost }
}

async function requireEmpty(folder: string): Promise<void> {
  const names = await readdir(folder).catch((error) => {
    if (errorCode(error) === 'ENOENT') return []
    throw new StartError(`Cannot read ${folder} (${errorCode(error)}).`)
  })
  if (names.length === 0) return
  throw new StartError(`${folder} is not empty: choose another folder with PILOTHOUSE_DATA=<folder>.`)
}

function requireReadable({ system, migration, version }: Manifest): void {
  if (system !== SYSTEM) throw new StartError(`This backup is of ${system}: its databases cannot be read on ${SYSTEM}.`)
  const newest = journal.entries.at(-1)?.when ?? 0
  if (migration > newest)
    throw new StartError(`This backup is of a newer version (${version}) of Pilothouse: update before you restore it.`)
}
