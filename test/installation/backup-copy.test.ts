import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { copyIn } from '../../dev/backup/copy.ts'
import { openPlace } from '../../dev/backup/place.ts'
import { MissingObject } from '../../host/backups/errors.ts'

/** Copies `kept`, and the key of an object that is deleted while it is copied; returns the folder of the backup. */
async function copyWith(deleted: string) {
  const folder = await mkdtemp(join(tmpdir(), 'pilothouse-copy-'))
  onTestFinished(() => rm(folder, { recursive: true }))
  async function* keys() {
    yield* [deleted, 'kept']
  }
  async function* get(key: string) {
    yield Buffer.from('bytes')
    if (key === deleted) throw new MissingObject(key)
  }
  return { folder, copied: await copyIn(openPlace(folder, {}), keys(), get) }
}

it('a backup omits an object that is deleted while it is copied', async () => {
  const { folder, copied } = await copyWith('ref/tail')
  expect(copied).toMatchObject({ count: 1, bytes: 5 })
  expect(JSON.parse(await readFile(join(folder, 'objects.jsonl'), 'utf8'))).toMatchObject({ key: 'kept', bytes: 5 })
  const files = await readdir(join(folder, 'bucket'), { recursive: true })
  expect(files.toSorted()).toEqual(['kept', 'ref'])
})

it('a backup fails if the archive lacks an object', async () => {
  await expect(copyWith('backups/ref/wal')).rejects.toThrow('The archive has no object backups/ref/wal')
})
