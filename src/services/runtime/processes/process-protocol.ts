import type { Cause } from './call-chains.ts'

/**
 * If programs run in processes of their own, this header carries a CallContext between them and the API. The runtime
 * converts the `cf` of an outgoing request to this header and back. So the context does not reach the program, and no
 * headers need to be copied. Other clients can send the header too, but do not know the key.
 */
export const CALL_CONTEXT_HEADER = 'MF-CF-Blob'

/** Set on responses for which no program ran. Removed before the response leaves the API; programs cannot set it. */
export const NOT_RUN_HEADER = 'x-pilothouse-not-run'

/** Status of a process for a request that was meant for another process. */
export const WRONG_PROCESS = 421

export type ProcessCommand = 'alive' | 'end-idle' | 'start' | 'drop' | 'stop' | 'tally'

/** Name of a program in its address. */
export interface ProgramName {
  kind: 'function' | 'worker'
  ref: string
  name: string
}

export const keyOf = ({ kind, ref, name }: ProgramName): string => `${kind} ${ref}/${name}`

/** A call of a worker by a cron expression. */
export interface Scheduled {
  /** The matching cron expression. */
  cron: string
  /** Minute that it matched, in epoch milliseconds. */
  minute: number
  /** Id of the worker. A later worker of the same name is not called. */
  workerId: string
}

/** Data about a call that its request does not contain. */
export interface CallMetadata {
  /** Position in a chain of calls. */
  cause?: Cause
  /** Id in the invocation log; the program runs once for each id. */
  id?: string
  /**
   * The response was lost and the request cannot be repeated: the program must not run, and the call is logged as lost.
   */
  isLost?: boolean
  /** Undefined for a call by a request. */
  scheduled?: Scheduled | undefined
}

export interface CallContext extends CallMetadata {
  key: string
  /** Id of the process that the request is for. */
  process?: string
  /** Undefined for a call of a program. */
  command?: ProcessCommand
  /** Time of the last change of the called program, if it is recent: the process then evicts its caches. */
  changed?: { program: ProgramName; at: number }
}

/** Time after a request to the supervisor during which the API sends calls to the process without another request. */
export const LEASE_MS = 2_000

/** Report to the supervisor, which ends no process that may have calls. */
export interface BusyProcesses {
  /** Ids of processes with calls in progress. */
  busy: string[]
  /** Time of the list, in epoch milliseconds. */
  listedAt: number
}

/** Request to the supervisor for the process of a group. It starts one if there is none and `mayStart` is set. */
export interface PlaceRequest extends BusyProcesses {
  /** Key of the programs that share a process: those of a project, or a single suspect. */
  group: string
  ref: string
  mayStart: boolean
}

export interface Place {
  /** Random id of the process. */
  id: string
  /** Number of the service binding of the process. */
  slot: number
}

export const slotBinding = (slot: number) => `PROGRAMS_${slot}` as const

/**
 * The reason for the end of a process: a fault of its programs, no response to the supervisor, a signal from outside, or
 * disuse. A reason that is no longer known counts as a signal.
 */
export type EndReason = (typeof FAULTS)[number] | 'silent' | 'killed' | 'unused'
/** Reasons that only a program can have caused. */
export const FAULTS = ['cpu', 'memory', 'crash'] as const
