import { rm } from 'node:fs/promises'
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest'
import { type Host, startHost } from '../../host/host.ts'
import { newHostFolder } from './host-folder.ts'

const NAME = 'abcdefghijklmnopqrst'
const KEY = 'k'.repeat(32)

let folder: string
let host: Host

beforeAll(async () => {
  folder = await newHostFolder()
  host = await startHost({ folder, key: KEY, isDurable: false })
  expect(await send('PUT', '', { password: 'secret-of-the-owner', size: 'micro' })).toMatchObject({ status: 200 })
}, 60_000)
afterAll(async () => {
  await host?.stop()
  await rm(folder, { recursive: true, force: true })
})
afterEach(() => void vi.useRealTimers())

async function send(method: string, path: string, body?: object): Promise<{ status: number; body: unknown }> {
  const response = await fetch(`${host.url}/host/v1/instances/${NAME}${path}`, {
    method,
    headers: { authorization: `Bearer ${KEY}` },
    ...(body && { body: JSON.stringify(body) }),
  })
  const text = await response.text()
  return { status: response.status, body: text === '' ? undefined : JSON.parse(text) }
}

/** Returns the reply of an operation that outlasted its request. */
const outcomeOf = (operation: string): Promise<Response> =>
  fetch(`${host.url}/host/v1/operations/${operation}`, { headers: { authorization: `Bearer ${KEY}` } })

async function shownSettings(): Promise<Map<string, { value: string; pending_restart: boolean }>> {
  const { settings } = (await send('GET', '/settings')).body as {
    settings: { name: string; value: string; pending_restart: boolean }[]
  }
  return new Map(settings.map((setting) => [setting.name, setting]))
}

test('settings of an instance take effect, are shown, and return to those of its size', async () => {
  const set = { shared_buffers: '20MB', statement_timeout: '90s', log_duration: true }
  expect(await send('PUT', '/settings', { set })).toMatchObject({ status: 204 })
  const settings = await shownSettings()
  expect(settings.get('shared_buffers')?.value).toBe('20MB')
  expect(settings.get('statement_timeout')?.value).toBe('90s')
  expect(settings.get('log_duration')?.value).toBe('on')
  expect(settings.get('log_checkpoints')?.value).toBe('on')
  expect(await send('PUT', '/settings', { set: {} })).toMatchObject({ status: 204 })
  expect((await shownSettings()).get('shared_buffers')?.value).toBe('16MB')
}, 30_000)

test('a value that Postgres refuses is reported with its setting', async () => {
  const reply = await send('PUT', '/settings', { set: { work_mem: 'much', max_connections: 70 } })
  expect(reply).toMatchObject({
    status: 422,
    body: {
      error: { code: 'refused', refusals: [{ setting: 'work_mem', reason: expect.stringMatching(/^invalid value/) }] },
    },
  })
  expect((await shownSettings()).get('max_connections')?.value).toBe('60')
}, 30_000)

test('a restart can be deferred', async () => {
  await send('PUT', '/settings', { set: { max_connections: 71 }, restart: false })
  expect((await shownSettings()).get('max_connections')).toMatchObject({ value: '60', pending_restart: true })
  expect(await send('POST', '/restart')).toMatchObject({ status: 204 })
  expect((await shownSettings()).get('max_connections')).toMatchObject({ value: '71', pending_restart: false })
  await send('PUT', '/settings', { set: {} })
}, 30_000)

test('a repeated request applies settings that were only recorded', async () => {
  await host.pool.require(NAME).update({ settings: { work_mem: '7MB', max_connections: '72' } })
  expect(await send('PUT', '/settings', { set: { work_mem: '7MB', max_connections: 72 } })).toMatchObject({
    status: 204,
  })
  const settings = await shownSettings()
  expect(settings.get('work_mem')?.value).toBe('7MB')
  expect(settings.get('max_connections')).toMatchObject({ value: '72', pending_restart: false })
  await send('PUT', '/settings', { set: {} })
}, 30_000)

test('of concurrent changes, one replaces the others as a whole', async () => {
  const changes = [2, 3, 4].map((n) => ({ work_mem: `${n}MB`, statement_timeout: `9${n}s` }))
  await Promise.all(changes.map((set) => send('PUT', '/settings', { set })))
  const settings = await shownSettings()
  const shown = Object.fromEntries(['work_mem', 'statement_timeout'].map((name) => [name, settings.get(name)?.value]))
  expect(changes).toContainEqual(shown)
  await send('PUT', '/settings', { set: {} })
}, 30_000)

test('a size changes the settings that depend on it', async () => {
  expect(await send('PUT', '/size', { size: 'small' })).toMatchObject({ status: 204 })
  expect((await shownSettings()).get('max_connections')?.value).toBe('90')
  expect(await send('GET', '')).toMatchObject({ body: { size: 'small' } })
  for (const size of ['huge', '48xlarge_high_memory']) {
    expect(await send('PUT', '/size', { size })).toMatchObject({ status: 422 })
  }
  expect(await send('GET', '')).toMatchObject({ body: { size: 'small' } })
}, 30_000)

test('a change that outlasts its request while it waits for the lock takes effect', async () => {
  const { lock } = (await send('POST', '/lock')).body as { lock: string }
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  let isAnswered = false
  const sent = send('PUT', '/access', { ssl: true, networks: ['192.0.2.0/24'] }).finally(() => {
    isAnswered = true
  })
  await expect.poll(() => vi.advanceTimersByTimeAsync(5_000).then(() => isAnswered)).toBe(true)
  vi.useRealTimers()
  const { status, body } = await sent
  expect(status).toBe(202)
  await send('DELETE', `/lock/${lock}`)
  expect((await outcomeOf((body as { operation: string }).operation)).status).toBe(204)
  expect(await send('GET', '')).toMatchObject({ body: { access: { ssl: true, networks: ['192.0.2.0/24'] } } })
}, 30_000)
