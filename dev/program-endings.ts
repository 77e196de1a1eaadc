import type { EndReason } from '../src/services/runtime/processes/process-protocol.ts'

/** Signals that the kernel sends when memory runs out, an operator, or a shutdown. A crash has another signal or none. */
const KILLS: readonly (NodeJS.Signals | null)[] = ['SIGKILL', 'SIGTERM', 'SIGINT', 'SIGHUP']
/** Near V8's heap limit of 1,400 MiB, garbage collection takes all the time, which looks like a loop, before it crashes. */
const FULL_HEAP_MiB = 1_024
const HEAP_CRASH = 'JavaScript heap out of memory'

export const endingByCpu = (residentMiB: number): EndReason => (residentMiB > FULL_HEAP_MiB ? 'memory' : 'cpu')

export const isHeapCrash = (line: string): boolean => line.includes(HEAP_CRASH)

export function endingByExit(signal: NodeJS.Signals | null, isHeapFull: boolean): EndReason {
  if (KILLS.includes(signal)) return 'killed'
  return isHeapFull ? 'memory' : 'crash'
}
