import { fork } from 'node:child_process'
import { setTimeout as delay } from 'node:timers/promises'

/** A delivery that arrived for the first time; `at` is the time of its first byte, in epoch milliseconds. */
export interface Arrival {
  id: string
  path: string
  at: number
}

export interface Received {
  arrivals: Arrival[]
  /** Number of repeated deliveries. */
  duplicates: number
}

export type Command =
  /** Is answered when `count` deliveries have been answered since the last `take`. */
  | { kind: 'expect'; count: number }
  /** Makes these paths hang from now on; deliveries that hung before are answered. */
  | { kind: 'hang'; paths: string[] }
  | { kind: 'take' }

export interface Receivers {
  url: string
  expect(count: number, timeoutMs: number): Promise<void>
  /** Waits for `count` deliveries; resolves to false if fewer arrived in time. */
  reached(count: number, timeoutMs: number): Promise<boolean>
  hang(paths: string[]): Promise<void>
  /** Returns the arrivals since the last call. */
  take(): Promise<Received>
}

const PROCESS = new URL('receiver.ts', import.meta.url)

/** Runs `work` with receivers of webhooks that record what reaches them. */
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
      take: async () => (await ask({ kind: 'take' })) as Received,
    })
  } finally {
    child.kill()
  }
}
