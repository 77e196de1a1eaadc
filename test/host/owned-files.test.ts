import { execFileSync } from 'node:child_process'
import { chown, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { openOwned, readOwned } from '../../host/instances/files.ts'

/** Only root can have files of several accounts. */
describe.runIf(process.getuid?.() === 0)('a file in a folder of an account', () => {
  const account = { uid: 612_345, gid: 612_345 }
  let top: string
  let folder: string
  beforeAll(async () => {
    top = await mkdtemp(join(tmpdir(), 'owned-files-'))
    folder = join(top, 'data')
    await mkdir(folder)
    await writeFile(join(top, 'secret'), 'of another account')
    await writeFile(join(folder, 'own'), 'of the account')
    await chown(join(folder, 'own'), account.uid, account.gid)
    await symlink(join(top, 'secret'), join(folder, 'link'))
    await symlink(join(folder, 'own'), join(folder, 'link-to-own'))
    await symlink(top, join(folder, 'folder'))
    execFileSync('mkfifo', [join(folder, 'pipe')])
    await chown(join(folder, 'pipe'), account.uid, account.gid)
  })
  afterAll(() => rm(top, { recursive: true, force: true }))

  it('is read', async () => {
    expect(await readOwned(join(folder, 'own'), account)).toBe('of the account')
    await expect(readOwned(join(folder, 'none'), account)).rejects.toMatchObject({ code: 'ENOENT' })
  })

  it.each(['link', 'link-to-own', 'folder/secret', 'folder', 'pipe'])(
    'is not opened if it is something else: %s',
    async (name) => {
      await expect(openOwned(join(folder, name), account)).rejects.toThrow(/is not a file of its instance|ELOOP/)
    },
  )
})
