/**
 * The processes that run programs, from the API's view. The programs of a project share one process; a suspect has one
 * of its own. The supervisor (dev/programs.ts) starts, watches and ends the processes.
 */

import type { Bindings } from '../../../platform/bindings.ts'
import { BoundedMap } from '../../../platform/bounded-map.ts'
import { isSuspect, recordProcessEnd } from './back-off.ts'
import {
  type BusyProcesses,
  type EndReason,
  FAULTS,
  keyOf,
  LEASE_MS,
  type Place,
  type PlaceRequest,
  type ProgramName,
} from './process-protocol.ts'
import { askSupervisor } from './process-requests.ts'

/** Time that a call waits for a free slot. */
const WAIT_MS = 10_000
const RETRIED_MS = 100
/** Calls of a group that may wait for a free slot. */
const WAITING_MAX = 500
/** Time for which a program may go on running after its response. */
const RECENT_MS = 30_000
/** Assumed time of use of a WebSocket: the API cannot see when it closes. */
const SOCKET_MS = 600_000
const GROUPS_MAX = 10_000

/** Calls of a program in a process. */
interface Use {
  calls: number
  /** The program may be running until this time even without a call in progress. */
  runningUntil: number
}

export interface Process extends Place {
  /** All programs that were ever called in the process. */
  uses: Map<string, Use>
  hasEnded: boolean
}

/** Process of each group; until `until` the supervisor need not be asked again. */
const leases = new BoundedMap<string, { process: Process; until: number }>(GROUPS_MAX)
const bySlot = new Map<number, Process>()

/** Calls of a group that wait for a free slot. */
interface Queue {
  /** One object for each call, the oldest first. The runtime may end a call without notice, so each has a deadline. */
  calls: Set<{ until: number }>
  /** Time of the next request to the supervisor. */
  requestAt: number
}

const queues = new Map<string, Queue>()

/** Ignores a queue that makes no requests any more, because the runtime may have ended its calls. */
function findQueue(group: string): Queue | undefined {
  const queue = queues.get(group)
  return queue && queue.requestAt > Date.now() - WAIT_MS ? queue : undefined
}

type GroupRequest = Omit<PlaceRequest, keyof BusyProcesses>

const groupOf = (program: ProgramName): string => (isSuspect(keyOf(program)) ? keyOf(program) : program.ref)

/** Returns the process of a program if it is known to run. */
export function knownProcess(program: ProgramName): Process | undefined {
  const lease = leases.get(groupOf(program))
  return lease && !lease.process.hasEnded && Date.now() < lease.until ? lease.process : undefined
}

/** The process of a program, started if necessary. Undefined if no slot becomes free, or if none runs and `mayStart` is false. */
export async function acquireProcess(
  bindings: Bindings,
  program: ProgramName,
  mayStart = true,
): Promise<Process | undefined> {
  const known = knownProcess(program)
  if (known) return known
  const request = { group: groupOf(program), ref: program.ref, mayStart }
  const process = mayStart && findQueue(request.group) ? undefined : await requestProcess(bindings, request)
  return process || !mayStart ? process : awaitProcess(bindings, program, request)
}

/** Waits for a free slot. One call of the group at a time asks for all that wait. */
async function awaitProcess(bindings: Bindings, program: ProgramName, request: GroupRequest) {
  const { group } = request
  const queue = findQueue(group) ?? { calls: new Set(), requestAt: Date.now() + RETRIED_MS }
  for (const call of queue.calls) {
    if (call.until >= Date.now()) break
    queue.calls.delete(call)
  }
  if (queue.calls.size >= WAITING_MAX) return undefined
  queues.set(group, queue)
  const call = { until: Date.now() + WAIT_MS }
  queue.calls.add(call)
  try {
    while (Date.now() < call.until) {
      await scheduler.wait(RETRIED_MS)
      const known = knownProcess(program)
      if (known) return known
      if (Date.now() < queue.requestAt) continue
      queue.requestAt = Date.now() + RETRIED_MS
      const process = await requestProcess(bindings, request)
      if (process) return process
    }
    return undefined
  } finally {
    queue.calls.delete(call)
    if (queue.calls.size === 0 && queues.get(group) === queue) queues.delete(group)
  }
}

async function requestProcess(bindings: Bindings, request: GroupRequest): Promise<Process | undefined> {
  const busy = listBusyProcesses()
  const place = await askSupervisor<Place>(bindings, '/place', { ...request, ...busy } satisfies PlaceRequest)
  if (!place) return undefined
  const process = processAt(place)
  leases.set(request.group, { process, until: busy.listedAt + LEASE_MS })
  return process
}

/** Reports the running calls to the supervisor, which otherwise learns of them only with the next request for a process. */
export async function reportBusyProcesses({ bindings }: { bindings: Bindings }): Promise<void> {
  if (bindings.PROGRAMS) await askSupervisor(bindings, '/busy', listBusyProcesses())
}

function processAt(place: Place): Process {
  const known = bySlot.get(place.slot)
  if (known?.id === place.id) return known
  const process: Process = { ...place, uses: new Map(), hasEnded: false }
  bySlot.set(place.slot, process)
  return process
}

const isRunning = ({ calls, runningUntil }: Use, now: number): boolean => calls > 0 || runningUntil > now

function listBusyProcesses(): BusyProcesses {
  // Background work after a response does not count: it may be cut off to free a slot.
  const listedAt = Date.now()
  const busyUntil = listedAt + RECENT_MS
  const isBusy = ({ uses }: Process) => [...uses.values()].some((use) => isRunning(use, busyUntil))
  return { busy: [...bySlot.values()].filter(isBusy).map(({ id }) => id), listedAt }
}

export type Outcome = 'answered' | 'socket' | 'not run'

/** Notes the start of a call; the returned function notes its end. */
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

/**
 * Returns why the process ended, undefined if it still runs. Called after a failed call. The first caller records which
 * programs ran.
 */
export async function findEndReason(bindings: Bindings, process: Process): Promise<EndReason | undefined> {
  const endReason = await askSupervisor<EndReason>(bindings, '/ending', { id: process.id })
  if (!endReason || process.hasEnded) return endReason
  process.hasEnded = true
  if (endReason === 'unused') return endReason
  const now = Date.now()
  const uses = [...process.uses]
  recordProcessEnd({
    ran: uses.map(([program]) => program),
    running: uses.flatMap(([program, use]) => (isRunning(use, now) ? [program] : [])),
    isFault: FAULTS.some((fault) => fault === endReason),
  })
  return endReason
}
