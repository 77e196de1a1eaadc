import { join } from 'node:path'
import { dataFiles } from '../copies/data-files.ts'
import { withRunningBackup } from '../copies/running-backup.ts'
import { type Instance, Refused } from '../instances/types.ts'
import { ARCHIVE_PREFIX, type Archive } from './archive.ts'

/** Description of a backup. It is written last: a backup without a manifest does not exist. */
export interface Manifest {
  id: string
  instance: string
  /** Version of Postgres, such as `18.4`. */
  version: string
  startLsn: string
  stopLsn: string
  /** The earliest moment that the backup can be restored to; ISO 8601. */
  stoppedAt: string
  timeline: number
  segmentBytes: number
  /** Size of the files; `storedBytes` and `sha256` are those of the stored object. */
  bytes: number
  storedBytes: number
  sha256: string
}

export const prefixOf = (name: string) => `${ARCHIVE_PREFIX}${name}/`
const objectOf = (name: string, id: string) => `${prefixOf(name)}base/${id}.tar`
const manifestOf = (name: string, id: string) => `${prefixOf(name)}base/${id}.json`

/** The objects of a backup. */
export const keysOf = (name: string, id: string): string[] => [objectOf(name, id), manifestOf(name, id)]

function checkId(id: string): void {
  if (/^[\w-]{1,64}$/.test(id)) return
  throw new Refused([{ setting: 'id', reason: 'must be 1 to 64 letters, digits, _ or -' }])
}

/** Makes a backup, or returns the existing backup with this id. */
export async function makeBackup(archive: Archive, instance: Instance, id: string): Promise<Manifest> {
  checkId(id)
  const { name, paths, programs, record } = instance
  const known = (await listBackups(archive, name, id)).find((backup) => backup.id === id)
  if (known) return known
  let manifest: Omit<Manifest, 'storedBytes' | 'sha256'> | undefined
  const stored = await archive.putFiles(objectOf(name, id), (tar) =>
    withRunningBackup(
      instance,
      async () => {
        const { folders, files } = await dataFiles(paths.data)
        for (const folder of folders) await tar.folder(folder)
        for (const file of files) await tar.file(join(paths.data, file), file, record.account)
      },
      async ({ label, wal, stoppedAt, startLsn, stopLsn, timeline, segmentBytes }) => {
        for (const file of wal) await tar.file(join(paths.data, 'pg_wal', file), `pg_wal/${file}`, record.account)
        await tar.content('backup_label', Buffer.from(label))
        const facts = { id, instance: name, version: programs.version, stoppedAt: stoppedAt.toISOString() }
        manifest = { ...facts, startLsn, stopLsn, timeline, segmentBytes, bytes: tar.bytes }
      },
    ),
  )
  if (!manifest) throw new Error('The backup did not end')
  const complete = { ...manifest, storedBytes: stored.bytes, sha256: stored.sha256 }
  await archive.putText(manifestOf(name, id), JSON.stringify(complete))
  return complete
}

/** Lists backups, oldest first; with `id`, only those whose ids start with it. */
export async function listBackups(archive: Archive, name: string, id = ''): Promise<Manifest[]> {
  const objects = await archive.store.list(`${prefixOf(name)}base/${id}`)
  const keys = objects.map(({ key }) => key).filter((key) => key.endsWith('.json'))
  const manifests = await Promise.all(keys.map(async (key) => JSON.parse(await archive.text(key)) as Manifest))
  return manifests.sort((a, b) => a.stoppedAt.localeCompare(b.stoppedAt))
}

/** Lists the ids of backups without reading their manifests. */
export async function backupIds(archive: Archive, name: string): Promise<string[]> {
  const objects = await archive.store.list(`${prefixOf(name)}base/`)
  return objects.flatMap(({ key }) => /\/([\w-]+)\.json$/.exec(key)?.[1] ?? [])
}

/** Removes the manifest first: if a crash leaves the object, it is an orphan that the sweep removes. */
export async function removeBackup(archive: Archive, name: string, id: string): Promise<void> {
  checkId(id)
  await archive.store.delete([manifestOf(name, id)])
  await archive.store.delete([objectOf(name, id)])
}

/** Unpacks a backup; throws `DamagedObject` if the object does not match the manifest. */
export const unpackBackup = (archive: Archive, { instance, id, sha256 }: Manifest, folder: string): Promise<void> =>
  archive.unpack(objectOf(instance, id), folder, sha256)

/** Lists objects of backups that were not finished or not completely removed. */
export async function orphanedBackups(archive: Archive, name: string, before: Date): Promise<string[]> {
  const objects = await archive.store.list(`${prefixOf(name)}base/`)
  const known = new Set(objects.map(({ key }) => key))
  return objects
    .filter(
      ({ key, modifiedAt }) => key.endsWith('.tar') && modifiedAt < before && !known.has(key.replace(/tar$/, 'json')),
    )
    .map(({ key }) => key)
}
