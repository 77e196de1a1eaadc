import { describe, expect, it } from 'vitest'
import { createAdmission, type Permit } from '../../../src/outbound/webhooks/delivery-permits.ts'

/** Makes the senders of one isolate, whose clock is moved by hand. */
function newIsolate(max?: number) {
  let now = 0
  const timers: { at: number; end: () => void }[] = []
  let polls = 0
  const admission = createAdmission(() => now, max)
  const timeout = (ms: number) => {
    polls += 1
    const controller = new AbortController()
    timers.push({ at: now + ms, end: () => controller.abort() })
    return { signal: controller.signal, clear() {} }
  }
  const settled = () => new Promise<void>((resolve) => setImmediate(resolve))
  /** A waiting sender that dies: it never polls again. */
  const neverPolling = () => ({ signal: new AbortController().signal, clear() {} })
  return {
    polls: () => polls,
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
    /** Moves the clock without the timers: they go on as if no time had passed. */
    jump(ms: number) {
      now += ms
      for (const timer of timers) timer.at += ms
    },
    async enter(wanted: number, { dies = false } = {}) {
      const entry: { permit?: Permit; at?: number } = {}
      void admission.enter(wanted, dies ? neverPolling : timeout).then((permit) => {
        Object.assign(entry, { permit, at: now })
      })
      await settled()
      return entry
    },
  }
}

describe('the senders of an isolate', () => {
  it('get everything that they ask for while there is room', async () => {
    const isolate = newIsolate()
    const { permit } = await isolate.enter(64)
    expect(permit?.count).toBe(64)
    permit?.setClaimed(3)
    expect((await isolate.enter(64)).permit?.count).toBe(64)
    expect((await isolate.enter(1)).permit?.count).toBe(1)
  })

  it('get smaller shares the more of them claim at once', async () => {
    const isolate = newIsolate()
    const counts: (number | undefined)[] = []
    for (let n = 0; n < 17; n++) counts.push((await isolate.enter(64)).permit?.count)
    expect(counts.slice(0, 6)).toEqual([64, 60, 37, 26, 19, 16])
    expect(counts.slice(6)).toEqual([...Array(10).fill(16), undefined])
  })

  it('wait when there is no room, and are admitted in their order with a share each', async () => {
    const isolate = newIsolate(64)
    const { permit: first } = await isolate.enter(64)
    first?.setClaimed(64)
    const waiting = [await isolate.enter(64), await isolate.enter(64), await isolate.enter(64)]
    const granted = () => waiting.map(({ permit }) => permit?.count)
    await isolate.pass(100)
    expect(granted()).toEqual([undefined, undefined, undefined])
    for (let n = 0; n < 8; n++) first?.markEnded()
    await isolate.pass(100)
    expect(granted()).toEqual([16, undefined, undefined])
    for (let n = 0; n < 56; n++) first?.markEnded()
    await isolate.pass(100)
    expect(granted()).toEqual([16, 16, 16])
  })

  it('wait for a sender that goes on, and not for one that starts nothing more', async () => {
    const isolate = newIsolate(64)
    const { permit: hanging } = await isolate.enter(64)
    hanging?.setClaimed(64)
    const waiting = await isolate.enter(64)
    for (let n = 0; n < 3; n++) {
      hanging?.markStarted()
      await isolate.pass(240)
    }
    expect(waiting.permit).toBeUndefined()
    await isolate.pass(40)
    expect(waiting.permit?.count).toBe(64)
  })

  it('wait again for a sender that goes on later', async () => {
    const isolate = newIsolate(64)
    const { permit: slow } = await isolate.enter(64)
    slow?.setClaimed(64)
    const between = await isolate.enter(64)
    await isolate.pass(300)
    between.permit?.setClaimed(0)
    slow?.markStarted()
    const waiting = await isolate.enter(64)
    await isolate.pass(200)
    expect(waiting.permit).toBeUndefined()
    for (let n = 0; n < 64; n++) slow?.markEnded()
    await isolate.pass(50)
    expect(waiting.permit?.count).toBe(64)
  })

  it('do not wait for a sender that died in its claim, or in the queue', async () => {
    const isolate = newIsolate(8)
    const dying = await isolate.enter(64)
    expect(dying.permit).toBeDefined()
    const gone = await isolate.enter(64, { dies: true })
    const waiting = await isolate.enter(64)
    await isolate.pass(11_900)
    expect(waiting.permit).toBeUndefined()
    await isolate.pass(200)
    expect(waiting.permit?.count).toBe(16)
    expect(gone.permit).toBeUndefined()
  })

  it('are admitted after the machine slept, or its clock was set, however many wait', async () => {
    for (const jumpMs of [60_000, -60_000]) {
      const isolate = newIsolate()
      const { permit: first } = await isolate.enter(64)
      first?.setClaimed(128)
      const entries: { permit?: Permit }[] = []
      for (let n = 0; n < 300; n++) entries.push(await isolate.enter(64))
      await isolate.pass(50)
      isolate.jump(jumpMs)
      for (let ms = 0; ms < 20_000 && !entries.every(({ permit }) => permit); ms += 50) {
        await isolate.pass(50)
        for (const { permit } of entries) permit?.setClaimed(0)
      }
      expect(entries.filter(({ permit }) => !permit)).toEqual([])
    }
  })

  it('are admitted at the rate at which a thousand of them send, each in its turn', async () => {
    const isolate = newIsolate()
    const entries: { permit?: Permit; at?: number }[] = []
    for (let n = 0; n < 1_000; n++) entries.push(await isolate.enter(64))
    // Sends each share within 50 ms.
    for (let ms = 0; ms < 10_000; ms += 50) {
      const here = entries.filter(({ permit }) => permit)
      await isolate.pass(50)
      for (const { permit } of here) permit?.setClaimed(0)
    }
    expect(entries.every(({ permit }) => permit)).toBe(true)
    const times = entries.map(({ at = 0 }) => at)
    // No sender is admitted before one that came 64 places earlier.
    for (const [n, at] of times.entries()) if (n >= 64) expect(at).toBeGreaterThanOrEqual(times[n - 64] ?? 0)
    expect(isolate.polls()).toBeLessThan(40_000)
  })
})
