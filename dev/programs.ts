import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { setTimeout as delay } from 'node:timers/promises'
import { logLine } from '../src/platform/http/log.ts'
import { isSameSecret } from '../src/platform/secrets/equal.ts'
import {
  CALL_CONTEXT_HEADER,
  type CallContext,
  type EndReason,
  type Place,
  type PlaceRequest,
  type ProcessCommand,
  slotBinding,
} from '../src/services/runtime/processes/process-protocol.ts'
import { lowerPriority, MEASURED_MS, memoryMiBMax, usageOf } from './child-process.ts'
import { tickEveryMinute } from './cron.ts'
import { freePorts } from './ports.ts'
import { endingByCpu, endingByExit, isHeapCrash } from './program-endings.ts'
import { type Program, type Running, run } from './supervised.ts'

const ENTRYPOINT = 'ProgramsHost'
/** How either side reaches the other. */
export const CALL_CONTEXT_OPTIONS = { cfBlobHeader: CALL_CONTEXT_HEADER }

const PROCESS_MiB = 128
const PROCESSES = { least: 4, most: 64 }
/** The share of the memory for programs that one process may take. */
const MEMORY_SHARE = 4
/** Processes of one project: the one that its programs share, and those of suspects. */
const OF_PROJECT_MAX = 3
/** A process that no call was for in this time ends. */
const UNUSED_MS = 400_000
/** How long a call waits for room. */
const ROOM_MS = 10_000
const RETRIED_MS = 100
/** A call that was just given a process may be missing in what the API says of calls under way. */
const IN_FLIGHT_MS = 1_000
/** How long a process may leave a question unanswered, and how long an idle one is not asked. */
const SILENT_SECONDS = 60
/** An idle process has computed no longer than this since it last answered. */
const ASKED_AFTER_SECONDS = 0.1
const ENDINGS_KEPT_MAX = 1_000
/** The API and the databases come first, then programs, then those that ended a process before. */
const NICE = { programs: 5, suspect: 19 }

interface Options extends Program {
  /** Host and port of the API. */
  api: string
  /** Processor time for which a process may answer nothing; on Cloudflare a call has 2 s. */
  cpuSeconds?: number | undefined
  /** What a process may have in memory. */
  memoryMiB?: number | undefined
  silentSeconds?: number
  measure?: typeof usageOf
  /** Ports of this machine that programs must not reach, beside those of their own processes. */
  closedPorts?: readonly number[]
}

export interface Programs {
  /** Of the supervisor. */
  address: string
  /** Of the processes that it starts, by slot. */
  slots: string[]
  key: string
  stop(): Promise<void>
}

interface Process extends Place {
  running: Running
  /** Undefined until it is given to programs. */
  group: string | undefined
  ref: string | undefined
  usedAt: number
  /** When it was last known to answer, and its processor time then. */
  answered: { at: number; cpuSeconds: number }
  isAsked: boolean
  hasEnded: PromiseWithResolvers<EndReason>
}

/**
 * The processes that run what users deploy, one for the programs of each project. A program that loops without end, or takes all memory,
 * ends its own process and nothing else.
 */
export async function startPrograms(options: Options): Promise<Programs> {
  const { onLine, cpuSeconds = 5, silentSeconds = SILENT_SECONDS, measure = usageOf, closedPorts = [] } = options
  const budgetMiB = memoryMiBMax()
  const { memoryMiB = Math.max(Math.floor(budgetMiB / MEMORY_SHARE), PROCESS_MiB) } = options
  const count = Math.min(Math.max(Math.floor(budgetMiB / PROCESS_MiB), PROCESSES.least), PROCESSES.most)
  const key = randomBytes(24).toString('hex')
  const ports = await freePorts(count)
  /** By id, those that run. */
  const processes = new Map<string, Process>()
  /** Ids of the processes with calls under way: as the API last said, and those that it was given since. */
  let busyIds = new Set<string>()
  const endings = new Map<string, EndReason>()
  const freeSlots = ports.map((_, slot) => slot)
  let spare: Promise<void> | undefined
  let isStopped = false

  async function startSpare(): Promise<void> {
    const slot = freeSlots.shift()
    if (slot === undefined) return
    const id = randomBytes(16).toString('hex')
    const worker = workerOf(options, { key, id, ports: [...closedPorts, ...ownPorts] })
    try {
      let isHeapFull = false
      const onProcessLine = (line: string) => {
        isHeapFull ||= isHeapCrash(line)
        if (isNews(line)) onLine(line)
      }
      const running = await run({ worker, onLine: onProcessLine }, { port: ports[slot], entrypoint: ENTRYPOINT })
      lowerPriority(running.pid, NICE.programs)
      const answered = { at: performance.now(), cpuSeconds: 0 }
      const process: Process = {
        ...{ id, slot, running, answered, group: undefined, ref: undefined, usedAt: Date.now() },
        ...{ isAsked: false, hasEnded: Promise.withResolvers() },
      }
      processes.set(id, process)
      void running.exited.then((signal) => end(process, endingByExit(signal, isHeapFull)))
    } catch (error) {
      freeSlots.push(slot)
      onLine(logLine('error', 'programs_not_started', { error: String(error) }))
    }
  }

  /** One process more than is needed is kept ready. */
  function prepareSpare(): Promise<void> {
    spare ??= startSpare().finally(() => {
      spare = undefined
    })
    return spare
  }

  async function end(process: Process, ending: EndReason): Promise<void> {
    const { id, slot, group, running } = process
    if (!processes.delete(id)) return
    endings.set(id, ending)
    for (const oldest of endings.keys()) {
      if (endings.size <= ENDINGS_KEPT_MAX) break
      endings.delete(oldest)
    }
    process.hasEnded.resolve(ending)
    if (ending !== 'unused' && !isStopped) onLine(logLine('error', 'programs_ended', { group, ending }))
    await running.stop().catch(() => {})
    freeSlots.push(slot)
  }

  async function place({ group, ref, mayStart, busy }: PlaceRequest): Promise<Process | undefined> {
    const now = Date.now()
    busyIds = new Set(busy)
    for (const id of busy) {
      const process = processes.get(id)
      if (process) process.usedAt = now
    }
    const waitedUntil = now + ROOM_MS
    for (;;) {
      const all = [...processes.values()]
      const known = all.find((process) => process.group === group)
      if (known) return give(known)
      if (!mayStart || isStopped || Date.now() > waitedUntil) return undefined
      const ofProject = all.filter((process) => process.ref === ref)
      const isFull = ofProject.length >= OF_PROJECT_MAX
      const ready = isFull ? undefined : all.find((process) => process.group === undefined)
      if (ready) {
        Object.assign(ready, { group, ref })
        if (group !== ref) lowerPriority(ready.running.pid, NICE.suspect)
        void prepareSpare()
        return give(ready)
      }
      if (!isFull && (spare || freeSlots.length > 0)) await prepareSpare()
      else if (!(await endUnused(isFull ? ofProject.filter((one) => one.group !== ref) : all))) await delay(RETRIED_MS)
    }
  }

  function give(process: Process): Process {
    process.usedAt = Date.now()
    busyIds.add(process.id)
    return process
  }

  /** False where all are in use. */
  async function endUnused(among: readonly Process[]): Promise<boolean> {
    const usedBefore = Date.now() - IN_FLIGHT_MS
    const unused = among.filter(({ id, group, usedAt }) => group && !busyIds.has(id) && usedAt < usedBefore)
    const [oldest] = unused.sort((a, b) => a.usedAt - b.usedAt)
    if (oldest) await end(oldest, 'unused')
    return oldest !== undefined
  }

  /** Undefined where the process goes on. */
  async function findEndReason(id: string): Promise<EndReason | undefined> {
    const process = processes.get(id)
    if (!process) return endings.get(id) ?? 'killed'
    // While a program keeps it busy there is no answer, until the watch ends it.
    return Promise.race([process.hasEnded.promise, answer(process)])
  }

  /** Resolves once the process answers, and never if it ends before. */
  async function answer(process: Process): Promise<undefined> {
    while (processes.has(process.id) && (await ask(process, 'alive')) !== process.id) await delay(RETRIED_MS)
    if (processes.has(process.id)) return undefined
    return new Promise(() => {})
  }

  async function ask({ slot, id }: Process, command: ProcessCommand): Promise<unknown> {
    const headers = { [CALL_CONTEXT_HEADER]: JSON.stringify({ key, process: id, command } satisfies CallContext) }
    const asked = fetch(`http://127.0.0.1:${ports[slot]}/`, { method: 'POST', headers, body: '{}' })
    const reply = asked.then((response) => response.json() as Promise<{ result?: unknown }>)
    return reply.then(({ result }) => result).catch(() => undefined)
  }

  async function watch(process: Process): Promise<void> {
    const { id, running, answered } = process
    const usage = await measure(running.pid)
    if (!processes.has(id)) return
    const residentMiB = usage?.residentMiB ?? 0
    if (residentMiB > memoryMiB) return end(process, 'memory')
    if (Date.now() - process.usedAt > UNUSED_MS && process.group !== undefined) return end(process, 'unused')
    // Not a number if the system does not tell: then silence alone ends the process.
    const spent = (usage?.cpuSeconds ?? Number.NaN) - answered.cpuSeconds
    const isSilent = performance.now() - answered.at > silentSeconds * 1_000
    if (process.isAsked && spent > cpuSeconds) return end(process, endingByCpu(residentMiB))
    if (process.isAsked && isSilent) return end(process, 'silent')
    if (process.isAsked || (spent < ASKED_AFTER_SECONDS && !isSilent)) return
    process.isAsked = true
    answered.at = performance.now()
    void ask(process, 'alive').then(async (reply) => {
      const now = await measure(running.pid)
      process.isAsked = false
      if (reply === id && now) answered.cpuSeconds = now.cpuSeconds
    })
  }

  const serve = async (incoming: IncomingMessage, response: ServerResponse): Promise<void> => {
    if (!isSameSecret(incoming.headers.authorization ?? '', `Bearer ${key}`)) return void response.writeHead(403).end()
    const about = JSON.parse(await text(incoming))
    const result = incoming.url === '/place' ? placeOf(await place(about)) : await findEndReason(about.id)
    response.setHeader('content-type', 'application/json').end(JSON.stringify({ result }))
  }

  const server = createServer((incoming, response) => {
    serve(incoming, response).catch((error) => {
      onLine(logLine('error', 'programs_failed', { error: String(error) }))
      response.writeHead(500).end()
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const ownPorts = [...ports, port]
  await prepareSpare()
  const watching = setInterval(() => {
    for (const process of processes.values()) void watch(process)
  }, MEASURED_MS)
  const cron = tickEveryMinute(() => Promise.all(Array.from(processes.values(), (one) => ask(one, 'end-idle'))), onLine)
  return {
    address: `127.0.0.1:${port}`,
    slots: ports.map((each) => `127.0.0.1:${each}`),
    key,
    async stop() {
      isStopped = true
      cron.stop()
      clearInterval(watching)
      server.close()
      server.closeAllConnections()
      await spare
      await Promise.all(Array.from(processes.values(), (process) => end(process, 'unused')))
    },
  }
}

const placeOf = (process: Process | undefined): Place | undefined => process && { id: process.id, slot: process.slot }

function workerOf({ worker, api }: Options, { key, id, ports }: { key: string; id: string; ports: number[] }) {
  const { bindings, serviceBindings } = worker as Record<'bindings' | 'serviceBindings', Record<string, unknown>>
  return {
    ...worker,
    // Its queues are the API's.
    queueProducers: undefined,
    queueConsumers: undefined,
    bindings: { ...bindings, PROGRAMS_KEY: key, PROGRAMS_PROCESS: id, CLOSED_PORTS: ports.join(',') },
    serviceBindings: { ...serviceBindings, API: { external: { address: api, http: CALL_CONTEXT_OPTIONS } } },
  }
}

/** The service bindings that lead the API there. */
export function programBindings({ address, slots }: Programs): Record<string, unknown> {
  const bindings = slots.map(
    (slot, n) => [slotBinding(n), { external: { address: slot, http: CALL_CONTEXT_OPTIONS } }] as const,
  )
  return { PROGRAMS: { external: { address, http: {} } }, ...Object.fromEntries(bindings) }
}

/** What the runtime says of each program that is ended because nobody calls it any more. */
const ISOLATE_ENDED = 'script terminated for unknown reasons'
export const isNews = (line: string): boolean => !line.includes(ISOLATE_ENDED)
