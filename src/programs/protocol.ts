import type { Cause } from './chains.ts'

/**
 * Where programs run in a process of their own, this header of each request to it says that the API sent it, and what is wanted: a call of a
 * program, or one of the API's own questions. It goes no further.
 */
export const FROM_API_HEADER = 'x-pilothouse-from-api'

/** The same in the other direction: that a program's call comes from the process that runs it, and where it stands. */
export const FROM_PROGRAMS_HEADER = 'x-pilothouse-from-programs'

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

export interface FromApi {
  key: string
  /** Undefined for a call of a program. */
  question?: Question
  /** The program that is called, and when it was last changed, if only just. */
  changed?: { program: ProgramName; at: number }
  cause?: Cause
}

export interface FromPrograms {
  key: string
  cause: Cause
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
