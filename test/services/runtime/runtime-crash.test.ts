import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, it, vi } from 'vitest'
import { saveOptions } from '../../../dev/bundle.ts'
import { spawnedBy } from '../../../dev/child-process.ts'
import { freePort } from '../../../dev/ports.ts'
import { startWorker } from '../../../dev/worker.ts'
import { PLACEHOLDERS } from '../../../dev/worker-settings.ts'
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
  scheduled({ scheduledTime }) { globalThis.tickedAt ??= scheduledTime },
  queue() {},
  fetch() {
    globalThis.runtime ??= crypto.randomUUID()
    return Response.json({ runtime: globalThis.runtime, tickedAt: globalThis.tickedAt })
  },
}`

it('the cron runs at once in the runtime that replaces a crashed one', async () => {
  writeFileSync(join(folder, 'index.js'), WORKER)
  await saveOptions(folder)
  const port = await freePort(0, 'api')
  const ticked = () =>
    vi.waitFor(async () => {
      const state = (await (await fetch(`http://127.0.0.1:${port}/`)).json()) as { runtime: string; tickedAt?: number }
      return { ...state, tickedAt: state.tickedAt ?? expect.fail('the cron has not run') }
    }, WAIT)
  const { result: worker, children } = await spawnedBy(() =>
    startWorker({ bundle: folder, port, bindings: PLACEHOLDERS, folder: join(folder, 'worker'), onLine: () => {} }),
  )
  try {
    const first = await ticked()
    // The processes of programs start after the API.
    children[0]?.kill('SIGKILL')
    const next = await ticked()
    expect(next.runtime).not.toBe(first.runtime)
    // The cron of each minute runs at a full minute.
    expect(next.tickedAt % 60_000).not.toBe(0)
  } finally {
    await worker.stop()
  }
})
