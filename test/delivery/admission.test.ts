import { describe, expect, it } from 'vitest'
import { createAdmission, type Permit } from '../../src/delivery/admission.ts'

/** Senders in one isolate whose clock is moved by hand. */
function newIsolate(max?: number) {
  let now = 0
  const timers: { at: number; end: () => void }[] = []
  const admission = createAdmission(() => now, max)
  const timeout = (ms: number) => {
    const controller = new AbortController()
    timers.push({ at: now + ms, end: () => controller.abort() })
    return { signal: controller.signal, clear() {} }
  }
  const settled = () => new Promise<void>((resolve) => setImmediate(resolve))
  /** Someone who vanishes while he waits never looks again. */
  const vanishing = () => ({ signal: new AbortController().signal, clear() {} })
  return {
    async pass(ms: number) {
      const until = now + ms
      await settled()
      for (;;) {
        const next = Math.min(...timers.map(({ at }) => at))
        if (next > until) break
        now = next
        for (const timer of timers.splice(0)) {
          if (timer.at <= now) timer.end()
          else timers.push(timer)
        }
        await settled()
      }
      now = until
    },
    async enter(wanted: number, { vanishes = false } = {}) {
      const entry: { permit?: Permit; at?: number } = {}
      void admission.enter(wanted, vanishes ? vanishing : timeout).then((permit) => {
        Object.assign(entry, { permit, at: now })
      })
      await settled()
      return entry
    },
  }
}

describe('the senders of an isolate', () => {
  it('get all that they ask for while there is room', async () => {
    const isolate = newIsolate()
    expect((await isolate.enter(64)).permit?.count).toBe(64)
    expect((await isolate.enter(1)).permit?.count).toBe(1)
  })

  it('wait when there is none, and come in in their order with a share each', async () => {
    const isolate = newIsolate(64)
    const first = await isolate.enter(64)
    first.permit?.claimed(64)
    const waiting = [await isolate.enter(64), await isolate.enter(64), await isolate.enter(64)]
    await isolate.pass(100)
    expect(waiting.map(({ permit }) => permit)).toEqual([undefined, undefined, undefined])
    for (let n = 0; n < 8; n++) first.permit?.left()
    await isolate.pass(50)
    expect(waiting.map(({ permit }) => permit?.count)).toEqual([16, undefined, undefined])
    for (let n = 0; n < 56; n++) first.permit?.left()
    await isolate.pass(50)
    expect(waiting.map(({ permit }) => permit?.count)).toEqual([16, 16, 64])
  })

  it('do not wait for what hangs', async () => {
    const isolate = newIsolate(64)
    const hanging = await isolate.enter(64)
    hanging.permit?.claimed(64)
    const waiting = await isolate.enter(64)
    await isolate.pass(240)
    expect(waiting.permit).toBeUndefined()
    await isolate.pass(20)
    expect(waiting.permit?.count).toBe(64)
  })

  it('do not wait for a sender that died in its claim, or in the line', async () => {
    const isolate = newIsolate(8)
    const dying = await isolate.enter(64)
    expect(dying.permit).toBeDefined()
    const gone = await isolate.enter(64, { vanishes: true })
    const waiting = await isolate.enter(64)
    await isolate.pass(9_990)
    expect(waiting.permit).toBeUndefined()
    await isolate.pass(20)
    expect(waiting.permit?.count).toBe(64)
    expect(gone.permit).toBeUndefined()
  })

  it('come in at the rate at which a thousand of them send, each in its turn', async () => {
    const isolate = newIsolate()
    const entries: { permit?: Permit; at?: number }[] = []
    for (let n = 0; n < 1_000; n++) entries.push(await isolate.enter(64))
    // Each share is sent within 50 ms.
    for (let ms = 0; ms < 10_000; ms += 50) {
      const here = entries.filter(({ permit }) => permit)
      await isolate.pass(50)
      for (const { permit } of here) permit?.claimed(0)
    }
    expect(entries.every(({ permit }) => permit)).toBe(true)
    const times = entries.map(({ at = 0 }) => at)
    // None before one that came 64 places earlier.
    for (const [n, at] of times.entries()) if (n >= 64) expect(at).toBeGreaterThanOrEqual(times[n - 64] ?? 0)
  })
})
