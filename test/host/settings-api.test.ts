import { rm } from 'node:fs/promises'
import { afterAll, beforeAll, expect, test } from 'vitest'
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

async function send(method: string, path: string, body?: object): Promise<{ status: number; body: unknown }> {
  const response = await fetch(`${host.url}/host/v1/instances/${NAME}${path}`, {
    method,
    headers: { authorization: `Bearer ${KEY}` },
    ...(body && { body: JSON.stringify(body) }),
  })
  const text = await response.text()
  return { status: response.status, body: text === '' ? undefined : JSON.parse(text) }
}

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
  expect(await send('PUT', '/settings', { reset: Object.keys(set) })).toMatchObject({ status: 204 })
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
  await send('PUT', '/settings', { reset: ['max_connections'] })
}, 30_000)

test('a size sets its values', async () => {
  expect(await send('PUT', '/size', { size: 'small' })).toMatchObject({ status: 204 })
  expect((await shownSettings()).get('max_connections')?.value).toBe('90')
  expect(await send('GET', '')).toMatchObject({ body: { size: 'small' } })
  expect(await send('PUT', '/size', { size: 'huge' })).toMatchObject({ status: 422 })
}, 30_000)
