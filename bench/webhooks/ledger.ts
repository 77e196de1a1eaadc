import { fork } from 'node:child_process'
import { setTimeout as delay } from 'node:timers/promises'

/** The first byte of a delivery that came for the first time, in epoch milliseconds. */
export interface Arrival {
  id: string
  path: string
  at: number
}

export interface Taken {
  arrivals: Arrival[]
  /** Deliveries that came again. */
  duplicates: number
}

export type Command =
  /** Replied to once so many have been answered since the last `take`. */
  | { kind: 'expect'; count: number }
  /** These paths hang from now on; what hung before is answered. */
  | { kind: 'hang'; paths: string[] }
  | { kind: 'take' }

export interface Receivers {
  url: string
  expect(count: number, timeoutMs: number): Promise<void>
  /** False when there were fewer by then. */
  reached(count: number, timeoutMs: number): Promise<boolean>
  hang(paths: string[]): Promise<void>
  /** What has come since the last time. */
  take(): Promise<Taken>
}

const PROCESS = new URL('receiver.ts', import.meta.url)

/** Receivers of webhooks, and what reached them. */
export async function withReceivers<T>(work: (receivers: Receivers) => Promise<T>): Promise<T> {
  const child = fork(PROCESS, { serialization: 'advanced' })
  const waiting = new Map<number, (value: unknown) => void>()
  let asked = 0
  child.on('message', ({ ask, value }: { ask: number; value: unknown }) => waiting.get(ask)?.(value))
  const reply = (ask: number) => new Promise<unknown>((resolve) => waiting.set(ask, resolve))
  const ask = (command: Command) => {
    asked += 1
    child.send({ ask: asked, command })
    return reply(asked)
  }
  const reached: Receivers['reached'] = async (count, timeoutMs) => {
    const stop = new AbortController()
    const tooLate = delay(timeoutMs, false, { signal: stop.signal }).catch(() => false)
    const outcome = await Promise.race([ask({ kind: 'expect', count }).then(() => true), tooLate])
    stop.abort()
    return outcome
  }
  try {
    const port = await reply(0)
    return await work({
      url: `http://127.0.0.1:${port}`,
      reached,
      async expect(count, timeoutMs) {
        if (!(await reached(count, timeoutMs)))
          throw new Error(`the receivers did not get ${count} deliveries in ${timeoutMs / 1000} s`)
      },
      hang: async (paths) => void (await ask({ kind: 'hang', paths })),
      take: async () => (await ask({ kind: 'take' })) as Taken,
    })
  } finally {
    child.kill()
  }
}
