import type { Cause } from './chains.ts'

/**
 * Where programs run in a process of their own, this header of each request between it and the API holds what the one tells the other. The
 * runtime makes it from the `cf` of a request that it sends, and the `cf` of one that it gets from it: it goes no further, and for its
 * sake no other header is copied. Requests of others may carry it too, without the key.
 */
export const TOLD_HEADER = 'MF-CF-Blob'

/** With answers that no program gave or began. It goes no further either, and programs cannot send it. */
export const NOT_RUN_HEADER = 'x-pilothouse-not-run'

export type Question = 'alive' | 'end-idle' | 'start' | 'drop' | 'stop' | 'tally'

/** What names a program to callers. */
export interface ProgramName {
  kind: 'function' | 'worker'
  ref: string
  name: string
}

export const keyOf = ({ kind, ref, name }: ProgramName): string => `${kind} ${ref}/${name}`

/** What is known of a call before it comes to its program. */
export interface Known {
  /** Where it stands. */
  cause?: Cause
  /** Under which it is logged, and run once. */
  id?: string
  /** It may have run, its answer did not come, and it cannot be sent again: it is not to be run any more. */
  isLost?: boolean
}

export interface Told extends Known {
  key: string
  /** To the process that runs programs; undefined for a call of a program. */
  question?: Question
  /** To that process: the program that is called, and when it was last changed, if only just. */
  changed?: { program: ProgramName; at: number }
}

/** What is answered to who asks whether it is alive. */
export interface Alive {
  /** When this process got its first request, in epoch milliseconds. */
  since: number
  /** Of the key that both know, so that no other server at its port is taken for it. */
  proof: string
}

const encoder = new TextEncoder()

/** What only who has the key can say. */
export async function proofOf(key: string): Promise<string> {
  const digest = await crypto.subtle.digest('SHA-256', encoder.encode(`alive ${key}`))
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, '0')).join('')
}
