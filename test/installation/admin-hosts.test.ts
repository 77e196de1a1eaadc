import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { promisify } from 'node:util'
import { eq } from 'drizzle-orm'
import { afterEach, describe, expect, inject, it, vi } from 'vitest'
import { readCommand } from '../../dev/admin/commands.ts'
import { hostApis } from '../../dev/admin/host-apis.ts'
import { databaseProblem } from '../../dev/database-problem.ts'
import type { ControlDb } from '../../dev/seed.ts'
import { StartError } from '../../dev/start-error.ts'
import { SettingsRefused } from '../../src/engine/settings.ts'
import { hostAssociatedData } from '../../src/model/secrets/associated-data.ts'
import { hosts, projects, projectTasks } from '../../src/model/tables/index.ts'
import { seal } from '../../src/platform/secrets/seal.ts'
import { callHost } from '../host/call-host.ts'
import { control, newOrganization } from '../support/api.ts'
import { newProject, untilGone } from '../support/projects.ts'

afterEach(() => void vi.unstubAllEnvs())

describe('a refusal by a host', () => {
  it('is printed in one line', async () => {
    const ref = await newProject(await newOrganization())
    const { url, key } = inject('host')
    const [DATABASE_URL, ENCRYPTION_KEY] = [inject('controlUrl'), inject('encryptionKey')]
    const own = { DATABASE_URL, ENCRYPTION_KEY, HOST_URL: url, HOST_KEY: key }
    const command = promisify(execFile)('node', ['dev/admin.ts', 'upgrades', 'undo', ref], {
      env: { ...process.env, ...own },
    })
    await expect(command).rejects.toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^.* there is no data from before an upgrade.*\n$/),
    })
  })

  it('names the refused settings', () => {
    const refused = new SettingsRefused([{ setting: 'work_mem', reason: 'is too large' }])
    expect(databaseProblem(refused, 'a hint')).toEqual(new StartError('work_mem: is too large'))
  })
})

describe('hosts add', () => {
  const add = (...args: string[]) => readCommand(['hosts', 'add', 'fra-1', 'http://127.0.0.1:9', ...args])(control)

  it.each([
    ['--database-host', 'http://foo bar', 'must be a host name or an IP address'],
    ['--database-host', 'db.example.com:5432', 'must be a host name or an IP address'],
    ['--database-domain', 'http://x/y', 'must be a host name in lower case, without a scheme and a port'],
    ['--database-port', 'abc', 'must be a number'],
  ])('refuses %s %s', async (flag, value, problem) => {
    const valid = flag === '--database-host' ? [] : ['--database-host', '127.0.0.1']
    await expect(add(...valid, flag, value)).rejects.toThrow(`${flag}=${value} cannot be used: ${problem}.`)
  })

  it.each(['DB.example.com', '192.0.2.7', '2001:db8::7'])('accepts the address %s', async (address) => {
    vi.stubEnv('HOST_KEY', undefined)
    const domain = ['--database-domain', 'db.example.com']
    await expect(add('--database-host', address, ...domain)).rejects.toThrow('Set HOST_KEY')
  })
})

describe('hosts remove', () => {
  it('removes a host without projects, and refuses an unknown one', async () => {
    const name = 'to-be-removed'
    const place = { url: 'http://127.0.0.1:9', databaseHost: '127.0.0.1', databasePort: 9, addedAt: new Date() }
    const rolledBack = new Error('rolled back')
    // The row is not committed, so that no Worker places projects on the host.
    const work = control.transaction(async (tx) => {
      await tx.insert(hosts).values({ ...place, name, sealedKey: 'unused', region: 'us-east-1' })
      const remove = () => readCommand(['hosts', 'remove', name])(tx as unknown as ControlDb)
      expect((await remove()).text).toBe(`${name} is no longer a host of this installation`)
      expect(await tx.select().from(hosts).where(eq(hosts.name, name))).toEqual([])
      await expect(remove()).rejects.toThrow(`no host is called "${name}"`)
      throw rolledBack
    })
    await expect(work).rejects.toBe(rolledBack)
  })

  it('waits for the end of a move from or to the host', async () => {
    const ref = await newProject(await newOrganization())
    const place = { url: 'http://127.0.0.1:9', databaseHost: '127.0.0.1', databasePort: 9, addedAt: new Date() }
    const rolledBack = new Error('rolled back')
    // The rows are not committed, so that no Worker places projects on the hosts or begins the move.
    const work = control.transaction(async (tx) => {
      const [from, to] = ['to-be-left', 'to-be-reached']
      for (const name of [from, to])
        await tx.insert(hosts).values({ ...place, name, sealedKey: 'unused', region: 'us-east-1' })
      const remove = async (name: string) =>
        (await readCommand(['hosts', 'remove', name])(tx as unknown as ControlDb)).text
      await tx.insert(projectTasks).values({ projectRef: ref, kind: 'move', input: { from, to }, dueAt: new Date() })
      for (const name of [from, to]) {
        // The refusal of a command undoes what it has done.
        await expect(
          tx.transaction((inner) => readCommand(['hosts', 'remove', name])(inner as unknown as ControlDb)),
        ).rejects.toThrow(`${name} has 1 project being moved from or to it: wait for the end of each move`)
      }
      await tx.update(projectTasks).set({ state: 'done' }).where(eq(projectTasks.projectRef, ref))
      for (const name of [from, to]) expect(await remove(name)).toContain('is no longer a host')
      throw rolledBack
    })
    await expect(work).rejects.toBe(rolledBack)
  })

  it('removes a lost host only if all its projects are going down', async () => {
    const ref = await newProject(await newOrganization())
    const name = 'to-be-lost'
    const { url, key } = inject('host')
    const encryptionKey = inject('encryptionKey')
    const sealedKey = await seal(encryptionKey, key, hostAssociatedData(name))
    const place = { databaseHost: '127.0.0.1', databasePort: 9, addedAt: new Date(), region: 'us-east-1' } as const
    vi.stubEnv('DATABASE_URL', 'postgresql://127.0.0.1/x')
    vi.stubEnv('ENCRYPTION_KEY', encryptionKey)
    const rolledBack = new Error('rolled back')
    // The rows are not committed, so that no Worker looks for the project there.
    const work = control.transaction(async (tx) => {
      const change = (changes: object) => tx.update(projects).set(changes).where(eq(projects.ref, ref))
      const remove = (...options: string[]) =>
        readCommand(['hosts', 'remove', name, ...options])(tx as unknown as ControlDb)
      await tx.insert(hosts).values({ ...place, name, url, sealedKey })
      await change({ engineState: { host: name } })
      await expect(remove('--lost')).rejects.toThrow(`${name} answers: remove it without --lost`)
      await tx.update(hosts).set({ url: 'http://127.0.0.1:9' }).where(eq(hosts.name, name))
      await expect(remove('--lost')).rejects.toThrow(`${name} has 1 project: move or delete them first`)
      await change({ status: 'GOING_DOWN' })
      await expect(remove()).rejects.toThrow(`${name} has 1 project: move or delete them first`)
      expect((await remove('--lost')).text).toBe(`${name} is no longer a host of this installation`)
      throw rolledBack
    })
    await expect(work).rejects.toBe(rolledBack)
  })

  it('lets the projects of a lost host be deleted, with what is left of them', async () => {
    const organization = await newOrganization()
    const ref = await newProject(organization)
    const changes = { engineState: { host: 'removed-as-lost' } }
    await control.update(projects).set(changes).where(eq(projects.ref, ref))
    expect((await organization.owner.delete(`/v1/projects/${ref}`)).status).toBe(200)
    await untilGone(organization.owner, ref)
    const { url, key } = inject('host')
    expect((await callHost({ url, key }, 'GET', `/instances/${ref}`)).status).toBe(404)
  })
})

describe('the key of a host', () => {
  it('is not opened by another encryption key: the error names ENCRYPTION_KEY', async () => {
    const [own, other] = ['k1', 'k1'].map((id) => `${id}:${randomBytes(32).toString('base64')}`)
    const name = 'of-the-test'
    const sealedKey = await seal(own ?? '', 'a key', hostAssociatedData(name))
    const place = { url: 'http://127.0.0.1:9', databaseHost: '127.0.0.1', databasePort: 9, addedAt: new Date() }
    vi.stubEnv('DATABASE_URL', 'postgresql://127.0.0.1/x')
    const rolledBack = new Error('rolled back')
    // The row is not committed, so that no Worker places projects on the host.
    const work = control.transaction(async (tx) => {
      await tx.insert(hosts).values({ ...place, name, sealedKey, region: 'us-east-1' })
      vi.stubEnv('ENCRYPTION_KEY', own)
      expect((await hostApis(tx as unknown as ControlDb)).get(name)?.host).toMatchObject({ id: name, key: 'a key' })
      vi.stubEnv('ENCRYPTION_KEY', other)
      await expect(hostApis(tx as unknown as ControlDb)).rejects.toThrow(
        new StartError('ENCRYPTION_KEY is not the one that the Worker of this database has.'),
      )
      throw rolledBack
    })
    await expect(work).rejects.toBe(rolledBack)
  })
})
