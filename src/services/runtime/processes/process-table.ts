/**
 * The processes that run programs, as the API knows them: the programs of a project share one, a suspect has one of its own. The
 * supervisor (dev/programs.ts) starts, watches and ends them.
 */

import type { Bindings } from '../../../platform/bindings.ts'
import { setNewest } from '../../../platform/bounded-map.ts'
import { isSuspect, recordProcessEnd } from './back-off.ts'
import { type EndReason, FAULTS, keyOf, type Place, type PlaceRequest, type ProgramName } from './process-protocol.ts'
import { askSupervisor } from './process-requests.ts'

/** For so long the supervisor does not end a process because nobody needs it. */
const LEASE_MS = 10_000
/** A program may go on after its answer. */
const RECENT_MS = 30_000
/** The API cannot see how long a socket is in use. */
const SOCKET_MS = 600_000
const GROUPS_MAX = 10_000

/** Calls of a program in a process. */
interface Use {
  calls: number
  /** Until when the program may be running though no call is under way. */
  runningUntil: number
}

export interface Process extends Place {
  /** Every program that was called there. */
  uses: Map<string, Use>
  hasEnded: boolean
}

/** By group, its process and until when the supervisor need not be asked. */
const leases = new Map<string, { process: Process; until: number }>()
const bySlot = new Map<number, Process>()

const groupOf = (program: ProgramName): string => (isSuspect(keyOf(program)) ? keyOf(program) : program.ref)

/** The process that a program runs in, if it is known to run. */
export function knownProcess(program: ProgramName): Process | undefined {
  const lease = leases.get(groupOf(program))
  return lease && !lease.process.hasEnded && Date.now() < lease.until ? lease.process : undefined
}

/** Undefined where there is no room for another process, or none runs and none is to be started. */
export async function acquireProcess(bindings: Bindings, program: ProgramName, mayStart = true) {
  const known = knownProcess(program)
  if (known) return known
  const group = groupOf(program)
  const request: PlaceRequest = { group, ref: program.ref, mayStart, busy: busyProcesses() }
  const place = await askSupervisor<Place>(bindings, '/place', request)
  if (!place) return undefined
  const process = processAt(place)
  setNewest(leases, group, { process, until: Date.now() + LEASE_MS }, GROUPS_MAX)
  return process
}

function processAt(place: Place): Process {
  const known = bySlot.get(place.slot)
  if (known?.id === place.id) return known
  const process: Process = { ...place, uses: new Map(), hasEnded: false }
  bySlot.set(place.slot, process)
  return process
}

const isRunning = ({ calls, runningUntil }: Use, now: number): boolean => calls > 0 || runningUntil > now

function busyProcesses(): string[] {
  // An answer alone keeps no process: what a program does after it may be cut off.
  const busyUntil = Date.now() + RECENT_MS
  const isBusy = ({ uses }: Process) => [...uses.values()].some((use) => isRunning(use, busyUntil))
  return [...bySlot.values()].filter(isBusy).map(({ id }) => id)
}

export type Outcome = 'answered' | 'socket' | 'not run'

/** Notes that a call of the program begins; returns a function for its end. */
export function beginCall({ uses }: Process, program: string): (outcome?: Outcome) => void {
  const use = uses.get(program) ?? { calls: 0, runningUntil: 0 }
  uses.set(program, use)
  use.calls += 1
  let isOver = false
  return (outcome = 'answered') => {
    if (isOver) return
    isOver = true
    use.calls -= 1
    if (outcome !== 'not run') {
      use.runningUntil = Math.max(use.runningUntil, Date.now() + (outcome === 'socket' ? SOCKET_MS : RECENT_MS))
    } else if (!isRunning(use, 0)) uses.delete(program)
  }
}

/** Why the process has ended, if it has; asked when a call failed. The first to learn of it notes which programs ran. */
export async function findEndReason(bindings: Bindings, process: Process): Promise<EndReason | undefined> {
  const ending = await askSupervisor<EndReason>(bindings, '/ending', { id: process.id })
  if (!ending || process.hasEnded) return ending
  process.hasEnded = true
  if (ending === 'unused') return ending
  const now = Date.now()
  const uses = [...process.uses]
  recordProcessEnd({
    ran: uses.map(([program]) => program),
    running: uses.flatMap(([program, use]) => (isRunning(use, now) ? [program] : [])),
    isFault: FAULTS.some((fault) => fault === ending),
  })
  return ending
}
