import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, it, vi } from 'vitest'
import { saveOptions } from '../../../dev/bundle.ts'
import { spawnedBy } from '../../../dev/child-process.ts'
import { freePort } from '../../../dev/ports.ts'
import { runWorker } from '../../../dev/worker.ts'
import { WAIT } from '../../support/machine.ts'

const folder = mkdtempSync(join(tmpdir(), 'pilothouse-crash-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const OBJECTS = [
  'RateLimiter',
  'WebhookSender',
  'WebhookSweeper',
  'LogDrainSender',
  'WorkerInstances',
  'MetricsCollector',
]
const WORKER = `
import { DurableObject } from 'cloudflare:workers'
${OBJECTS.map((name) => `export class ${name} extends DurableObject {}`).join('\n')}
export default {
  scheduled() { globalThis.hasTicked = true },
  queue() {},
  fetch: () => Response.json(globalThis.hasTicked === true),
}`

it('the cron continues in the runtime that replaces a crashed one', async () => {
  writeFileSync(join(folder, 'index.js'), WORKER)
  await saveOptions(folder)
  const port = await freePort(0, 'api')
  const hasTicked = () => fetch(`http://127.0.0.1:${port}/`).then((response) => response.json())
  const { result: worker, children } = await spawnedBy(() =>
    runWorker(
      { bundle: folder, port, bindings: {}, folder: join(folder, 'worker') },
      { serviceBindings: { BUILDER: () => new Response() }, onLine: () => {} },
    ),
  )
  try {
    await worker.tick()
    expect(await hasTicked()).toBe(true)
    expect(children.map((child) => child.kill('SIGKILL'))).toEqual([true])
    await vi.waitFor(async () => expect(await hasTicked()).toBe(false), WAIT)
    await worker.tick()
    expect(await hasTicked()).toBe(true)
  } finally {
    await worker.stop()
  }
})
