import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, it, vi } from 'vitest'
import { childAt } from '../dev/memory.ts'
import { freePort } from '../dev/ports.ts'
import { runWorker } from '../dev/worker.ts'
import { WAIT } from './machine.ts'

const folder = mkdtempSync(join(tmpdir(), 'pilothouse-crash-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const OBJECTS = ['RateLimiter', 'WebhookSender', 'WebhookSweeper', 'LogDrainSender', 'WorkerInstances']
const WORKER = `
import { DurableObject } from 'cloudflare:workers'
${OBJECTS.map((name) => `export class ${name} extends DurableObject {}`).join('\n')}
export default {
  scheduled() { globalThis.hasTicked = true },
  queue() {},
  fetch: () => Response.json(globalThis.hasTicked === true),
}`

it('the cron goes on in the runtime that takes the place of one that crashed', async () => {
  writeFileSync(join(folder, 'index.js'), WORKER)
  const port = await freePort(0, 'api')
  const hasTicked = () => fetch(`http://127.0.0.1:${port}/`).then((response) => response.json())
  const worker = await runWorker(
    { bundle: folder, port, bindings: {}, folder: join(folder, 'worker') },
    { serviceBindings: { BUILDER: () => new Response() }, onLine: () => {} },
  )
  try {
    await worker.tick()
    expect(await hasTicked()).toBe(true)
    const crashed = await childAt(port)
    if (crashed === undefined) throw new Error('no runtime listens there')
    process.kill(crashed, 'SIGKILL')
    await vi.waitFor(async () => expect(await hasTicked()).toBe(false), WAIT)
    await worker.tick()
    expect(await hasTicked()).toBe(true)
  } finally {
    await worker.stop()
  }
})
