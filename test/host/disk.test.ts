import { execFileSync, spawnSync } from 'node:child_process'
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Host, startHost } from '../../host/host.ts'
import { createHostEngine } from '../../src/engine/host/host.ts'
import { oneHost } from '../engine/host-engine.ts'
import { WAIT_MS } from '../support/wait.ts'
import { ROWS_OF_TEXT } from './call-host.ts'

const [A, B, C] = ['a', 'b', 'c'].map((letter) => letter.repeat(20)) as [string, string, string]
const KEY = 'a key of the test, of enough letters'
const WAIT = { timeout: WAIT_MS, interval: 100 }

const mount = (...args: string[]) => execFileSync('mount', args)
const unmount = (folder: string) => spawnSync('umount', ['--lazy', folder])

const root = mkdtempSync('/tmp/ph-')
const canMount = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=220m,mode=755', 'none', root]).status === 0
afterAll(() => {
  if (canMount) unmount(root)
  rmSync(root, { recursive: true, force: true })
})

/** Fills all the space that a file system has left. */
function fill(file: string): void {
  const fd = openSync(file, 'w')
  try {
    for (;;) writeSync(fd, Buffer.alloc(2 ** 12, 1))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error
  } finally {
    closeSync(fd)
  }
}

describe.skipIf(!canMount)('a host on a disk of its own (skipped if this user may not mount one)', () => {
  let host: Host
  let engine: ReturnType<typeof createHostEngine>
  const logged: string[] = []

  beforeAll(async () => {
    host = await startHost({ folder: root, key: KEY, isDurable: false, log: (event) => void logged.push(event) })
    const address = { id: 'local', url: host.url, key: KEY, databaseHost: '127.0.0.1', databasePort: host.gatewayPort }
    const states = { read: async () => undefined, refs: async () => [], write: async () => {} }
    engine = createHostEngine({ hosts: oneHost(address), states })
    for (const name of [A, B]) expect((await ask('PUT', `/instances/${name}`, { password: 'secret' })).status).toBe(200)
  }, 120_000)
  afterAll(() => host?.stop())

  async function ask(method: string, path: string, body?: object) {
    const headers = { authorization: `Bearer ${KEY}` }
    const response = await fetch(`${host.url}/host/v1${path}`, {
      method,
      headers,
      ...(body && { body: JSON.stringify(body) }),
    })
    const text = await response.text()
    return { status: response.status, body: text === '' ? undefined : JSON.parse(text) }
  }

  async function sql(name: string, query: string) {
    const headers = {
      authorization: `Bearer ${KEY}`,
      'neon-connection-string': `postgresql://postgres.${name}@x/postgres`,
      ...ROWS_OF_TEXT,
    }
    const body = JSON.stringify({ query, params: [] })
    const response = await fetch(`${host.url}/sql`, { method: 'POST', headers, body })
    return { status: response.status, body: (await response.json()) as { code?: string; message?: string } }
  }

  const health = (name: string) => engine.health(name, 10_000)
  const load = () => sql(A, `create table large as select repeat('x', 500) as x from generate_series(1, 20000)`)

  it('reports that the disk is full, starts nothing, and continues once there is room', async () => {
    const filler = join(root, 'filler')
    fill(filler)
    expect(await load()).toMatchObject({ status: 400, body: { code: '53100' } })
    const error = expect.stringContaining('the disk of the database is full')
    expect(await health(A)).toMatchObject({ healthy: false, error })
    await expect(engine.listRegions()).rejects.toThrow(
      'no database host has enough free disk space for another project',
    )
    const message = expect.stringContaining('the disk of the host is too full: 64 MiB are needed')
    const refused = { status: 503, body: { error: { code: 'unavailable', message } } }
    expect(await ask('PUT', `/instances/${C}`, { password: 'secret' })).toMatchObject(refused)

    const replica = `/instances/${A}/replicas/${A}-rr-us-east-1-abcde`
    const tooFull = { message: expect.stringContaining('the disk of the host is too full') }
    expect(await ask('PUT', replica, {})).toMatchObject({ status: 503, body: { error: tooFull } })

    const [pid] = readFileSync(join(root, 'instances', A, 'data', 'postmaster.pid'), 'utf8').split('\n')
    process.kill(Number(pid), 'SIGKILL')
    await expect
      .poll(() => health(A), WAIT)
      .toMatchObject({ error: expect.stringContaining('no space left on device') })
    for (let tries = 0; tries < 3; tries++) expect((await sql(A, 'select 1')).body.code).toBe('57P03')
    expect(logged.filter((event) => event === 'instance_not_started')).toHaveLength(1)

    rmSync(filler)
    await expect.poll(async () => (await load()).status, WAIT).toBe(200)
    expect(await health(A)).toEqual({ healthy: true })
    expect(await engine.listRegions()).toHaveLength(1)
    expect((await ask('PUT', `/instances/${C}`, { password: 'secret' })).status).toBe(200)
  })

  it('reports that the disk is read-only, and continues once it is not', async () => {
    expect((await ask('PUT', `/instances/${B}/sleep`, { after_seconds: 1 })).status).toBe(204)
    await expect.poll(async () => (await ask('GET', `/instances/${B}`)).body.state, WAIT).toBe('asleep')
    const folder = join(root, 'instances', B)
    mount('--bind', folder, folder)
    mount('-o', 'remount,ro,bind', folder)
    const message = 'EROFS: read-only file system; the disk of the database is read-only'
    expect(await sql(B, 'select 1')).toMatchObject({ status: 400, body: { code: '57P03', message } })
    expect(await health(B)).toEqual({ healthy: false, error: message })
    expect((await sql(A, 'select 1')).status).toBe(200)
    mount('-o', 'remount,rw,bind', folder)
    expect((await sql(B, 'create table written (n int)')).status).toBe(200)
    expect(await health(B)).toEqual({ healthy: true })
    unmount(folder)
  })
})
