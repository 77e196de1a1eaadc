import type { EndReason } from '../src/services/runtime/processes/process-protocol.ts'

/** Sent by the kernel out of memory, by an operator or by a shutdown; a crash has other signals or none. */
const KILLS: readonly (NodeJS.Signals | null)[] = ['SIGKILL', 'SIGTERM', 'SIGINT', 'SIGHUP']
/** V8 allows a heap of 1,400 MiB. Close to that it collects without end, which looks like a loop, and then crashes. */
const FULL_HEAP_MiB = 1_024
const HEAP_CRASH = 'JavaScript heap out of memory'

export const endingByCpu = (residentMiB: number): EndReason => (residentMiB > FULL_HEAP_MiB ? 'memory' : 'cpu')

export const isHeapCrash = (line: string): boolean => line.includes(HEAP_CRASH)

export function endingByExit(signal: NodeJS.Signals | null, isHeapFull: boolean): EndReason {
  if (KILLS.includes(signal)) return 'killed'
  return isHeapFull ? 'memory' : 'crash'
}
