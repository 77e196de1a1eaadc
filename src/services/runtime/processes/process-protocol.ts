import type { Cause } from './call-chains.ts'

/**
 * Where programs run in processes of their own, this header of each request between them and the API holds what the one tells the other. The
 * runtime makes it from the `cf` of a request that it sends, and the `cf` of one that it gets from it: it goes no further, and for its
 * sake no other header is copied. Requests of others may carry it too, without the key.
 */
export const CALL_CONTEXT_HEADER = 'MF-CF-Blob'

/** With answers that no program gave or began. It goes no further either, and programs cannot send it. */
export const NOT_RUN_HEADER = 'x-pilothouse-not-run'

/** Answered by a process to what was meant for another one. */
export const WRONG_PROCESS = 421

export type ProcessCommand = 'alive' | 'end-idle' | 'start' | 'drop' | 'stop' | 'tally'

/** What names a program to callers. */
export interface ProgramName {
  kind: 'function' | 'worker'
  ref: string
  name: string
}

export const keyOf = ({ kind, ref, name }: ProgramName): string => `${kind} ${ref}/${name}`

/** A call by the clock, of a worker. */
export interface Scheduled {
  /** The expression that names its minute. */
  cron: string
  /** Epoch milliseconds. */
  minute: number
  /** It is for no other version of the worker. */
  deploymentId: string
}

/** What is known of a call before it comes to its program. */
export interface CallMetadata {
  /** Where it stands. */
  cause?: Cause
  /** Under which it is logged, and run once. */
  id?: string
  /** It may have run, its answer did not come, and it cannot be sent again: it is not to be run any more. */
  isLost?: boolean
  /** Undefined for a request. */
  scheduled?: Scheduled | undefined
}

export interface CallContext extends CallMetadata {
  key: string
  /** The process that the request is for. */
  process?: string
  /** Undefined for a call of a program. */
  command?: ProcessCommand
  /** The program that is called, and when it was last changed, if that was a moment ago. */
  changed?: { program: ProgramName; at: number }
}

/** Asks the supervisor for the process of a group, which is started if there is none and `isStarted` holds. */
export interface PlaceRequest {
  /** Programs that share a process: those of a project, or a suspect alone. */
  group: string
  ref: string
  mayStart: boolean
  /** Processes with calls under way, which must not be ended to make room. */
  busy: string[]
}

export interface Place {
  /** Of the process, made anew for each. */
  id: string
  /** Number of the service binding that leads there. */
  slot: number
}

export const slotBinding = (slot: number) => `PROGRAMS_${slot}` as const

/**
 * Why a process has ended: by what its programs did, because it answered nothing, because of a signal from outside (also said if the reason
 * is not known any more), or because it was not needed.
 */
export type EndReason = (typeof FAULTS)[number] | 'silent' | 'killed' | 'unused'
/** What only a program can have done. */
export const FAULTS = ['cpu', 'memory', 'crash'] as const
