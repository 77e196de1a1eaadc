import { AsyncLocalStorage } from 'node:async_hooks'

/**
 * A console line of the program. It is sent to the host and not printed, because it would mix with the host's own log.
 */
export interface Line {
  level: string
  message: string
  at: string
}

/** One request to the program, including its background work. */
export interface Invocation {
  id: string
  /** The client's address; empty if unknown. */
  address: string
  /** Token to send with the program's own calls. The program can read it, but not create one. */
  chainToken: string
  /**
   * Whether the program is written for Workers, where the runtime encodes responses and keeps the encoding headers of
   * decoded ones.
   */
  isForWorkers: boolean
  lines: Line[]
  /** Number of lines printed in all. */
  printed: number
  waitUntil(work: Promise<unknown>): void
  /** Sends lines to the host. */
  write(id: string, lines: Line[]): Promise<unknown>
}

const storage = new AsyncLocalStorage<Invocation>()

export const currentInvocation = (): Invocation | undefined => storage.getStore()
export const runInInvocation = <T>(invocation: Invocation, work: () => T): T => storage.run(invocation, work)
