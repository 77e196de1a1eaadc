import { AsyncLocalStorage } from 'node:async_hooks'
import type { Line } from './console.ts'

/** One request to the program, from its arrival on until nothing of it is left to run. */
export interface Invocation {
  id: string
  /** The caller's address, where the host knows it. */
  address: string
  /** The host's, for what the program calls; the program can read it, and make none. */
  chainToken: string
  /** Its program is written for Workers, where the runtime packs answers and leaves what it has unpacked marked as packed. */
  isForWorkers: boolean
  lines: Line[]
  /** How many lines there were in all. */
  printed: number
  waitUntil(work: Promise<unknown>): void
  /** Hands lines over to the host. */
  write(id: string, lines: Line[]): Promise<unknown>
}

const storage = new AsyncLocalStorage<Invocation>()

export const current = (): Invocation | undefined => storage.getStore()
export const within = <T>(invocation: Invocation, work: () => T): T => storage.run(invocation, work)
