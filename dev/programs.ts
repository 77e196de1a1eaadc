import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { setTimeout as delay } from 'node:timers/promises'
import { logLine } from '../src/platform/http/log.ts'
import { isSameSecret } from '../src/platform/secrets/equal.ts'
import {
  type BusyProcesses,
  CALL_CONTEXT_HEADER,
  type CallContext,
  type EndReason,
  LEASE_MS,
  type Place,
  type PlaceRequest,
  type ProcessCommand,
  slotBinding,
} from '../src/services/runtime/processes/process-protocol.ts'
import { lowerPriority, MEASURE_INTERVAL_MS, memoryMiBMax, NICE, usageOf } from './child-process.ts'
import { tickEveryMinute } from './cron.ts'
import { freePorts } from './ports.ts'
import { endingByCpu, endingByExit, isHeapCrash } from './program-endings.ts'
import { type Program, type Running, run } from './supervise.ts'

const ENTRYPOINT = 'ProgramsHost'
/** HTTP options of the service bindings in both directions. */
export const CALL_CONTEXT_OPTIONS = { cfBlobHeader: CALL_CONTEXT_HEADER }

const PROCESS_MiB = 128
const PROCESSES = { least: 4, most: 64 }
/** The share of the memory for programs that one process may take. */
const MEMORY_SHARE = 4
/** Processes of one project: the one that its programs share, and those of suspected programs. */
const PROCESSES_PER_PROJECT_MAX = 3
/** A process without calls for this time is ended. */
const UNUSED_MS = 400_000
/** Time that a request waits for a process that starts. */
const WAIT_MS = 10_000
const RETRIED_MS = 100
/** Time after which a process that neither answers nor computes is ended, and an idle one is pinged. */
const SILENT_SECONDS = 60
/** A process that has used less processor time than this counts as idle. */
const WORK_SECONDS = 0.1
const ENDINGS_KEPT_MAX = 1_000

interface Options extends Program {
  /** Host and port of the API. */
  api: string
  /** Processor time that a process may use without answering; on Cloudflare a call has 2 s. */
  cpuSeconds?: number | undefined
  /** Memory limit of a process. */
  memoryMiB?: number | undefined
  silentSeconds?: number
  measure?: typeof usageOf
  /** Ports of this machine that programs must not reach, beside those of their own processes. */
  closedPorts?: readonly number[]
}

export interface Programs {
  /** Address of the supervisor. */
  address: string
  /** Addresses of its processes, by slot. */
  slots: string[]
  key: string
  /** Starts the first process. Does not wait: the first call finds it ready, waits for it, or starts it. */
  begin(): void
  stop(): Promise<void>
}

interface Process extends Place {
  running: Running
  /** The group of programs that it runs; undefined for a spare process. */
  group: string | undefined
  ref: string | undefined
  /** Time when it was last given to the API for calls. */
  assignedAt: number
  /** Time when it was last known to be used. */
  usedAt: number
  /** Time of the last ping, and the processor time that it had used by then or by its last answer. */
  answered: { at: number; cpuSeconds: number }
  /** Time at which it was last seen to compute, and the processor time that it had used by then. */
  worked: { at: number; cpuSeconds: number }
  isPinged: boolean
  /** Whether it has answered the last ping; true before the first one. */
  hasAnswered: boolean
  hasEnded: PromiseWithResolvers<EndReason>
}

/**
 * Starts the processes that run programs, one for the programs of each project. A program that loops without end, or takes all
 * memory, ends only its own process.
 */
export async function startPrograms(options: Options): Promise<Programs> {
  const { onLine, closedPorts = [] } = options
  const { cpuSeconds = 5, silentSeconds = SILENT_SECONDS, measure = usageOf } = options
  const budgetMiB = memoryMiBMax()
  const { memoryMiB = Math.max(Math.floor(budgetMiB / MEMORY_SHARE), PROCESS_MiB) } = options
  const count = Math.min(Math.max(Math.floor(budgetMiB / PROCESS_MiB), PROCESSES.least), PROCESSES.most)
  const key = randomBytes(24).toString('hex')
  const ports = await freePorts(count)
  /** Running processes by id. */
  const processes = new Map<string, Process>()
  /** The API's last report. */
  let reported = { busy: new Set<string>(), listedAt: 0 }
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
        if (isRelevantLine(line)) onLine(line)
      }
      const running = await run({ worker, onLine: onProcessLine }, { port: ports[slot], entrypoint: ENTRYPOINT })
      lowerPriority(running.pid, NICE.programs)
      const answered = { at: performance.now(), cpuSeconds: 0 }
      const process: Process = {
        ...{ id, slot, running, answered, worked: answered, group: undefined, ref: undefined },
        ...{ assignedAt: 0, usedAt: 0, isPinged: false, hasAnswered: true, hasEnded: Promise.withResolvers() },
      }
      processes.set(id, process)
      void running.exited.then((signal) => end(process, endingByExit(signal, isHeapFull)))
    } catch (error) {
      freeSlots.push(slot)
      if (!isStopped) onLine(logLine('error', 'programs_not_started', { error: String(error) }))
    }
  }

  /** Starts one process in advance, so that the next group need not wait. */
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

  function noteReport({ busy, listedAt }: BusyProcesses): void {
    reported = { busy: new Set(busy), listedAt }
    for (const id of busy) {
      const process = processes.get(id)
      if (process) process.usedAt = Math.max(process.usedAt, listedAt)
    }
  }

  async function place({ group, ref, mayStart, ...report }: PlaceRequest): Promise<Process | undefined> {
    noteReport(report)
    const waitedUntil = Date.now() + WAIT_MS
    for (;;) {
      const all = [...processes.values()]
      const known = all.find((process) => process.group === group)
      if (known) return assign(known)
      if (!mayStart || isStopped) return undefined
      const ofProject = all.filter((process) => process.ref === ref)
      const isFull = ofProject.length >= PROCESSES_PER_PROJECT_MAX
      const ready = isFull ? undefined : all.find((process) => process.group === undefined)
      if (ready) {
        Object.assign(ready, { group, ref })
        if (group !== ref) lowerPriority(ready.running.pid, NICE.suspect)
        void prepareSpare()
        return assign(ready)
      }
      if (Date.now() > waitedUntil) return undefined
      if (!isFull && (spare || freeSlots.length > 0)) await prepareSpare()
      else if (!(await endUnused(isFull ? ofProject.filter((one) => one.group !== ref) : all))) return undefined
    }
  }

  function assign(process: Process): Process {
    process.assignedAt = Date.now()
    process.usedAt = process.assignedAt
    return process
  }

  /** Whether the process had no calls at the last report and cannot have received any since: the API's lease had expired. */
  const isUnused = ({ id, group, assignedAt }: Process): boolean =>
    group !== undefined && !reported.busy.has(id) && assignedAt + LEASE_MS < reported.listedAt

  /** Ends the process that was unused for longest. Returns false if all are in use. */
  async function endUnused(among: readonly Process[]): Promise<boolean> {
    const [oldest] = among.filter(isUnused).sort((a, b) => a.usedAt - b.usedAt)
    if (oldest) await end(oldest, 'unused')
    return oldest !== undefined
  }

  /** The reason why the process ended; undefined if it still runs. */
  async function findEndReason(id: string): Promise<EndReason | undefined> {
    const process = processes.get(id)
    if (!process) return endings.get(id) ?? 'killed'
    // A process that is kept busy does not answer, until `watch` ends it.
    return Promise.race([process.hasEnded.promise, waitForAnswer(process)])
  }

  /** Resolves once the process answers, and never if it ends before. */
  async function waitForAnswer(process: Process): Promise<undefined> {
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
    if (Date.now() - process.usedAt > UNUSED_MS && isUnused(process)) return end(process, 'unused')
    // NaN if the operating system does not report usage: then the process is ended only if it does not answer.
    const cpuSecondsNow = usage?.cpuSeconds ?? Number.NaN
    const spent = cpuSecondsNow - answered.cpuSeconds
    // On a busy machine, a process of low priority gets little time. While it computes, it counts as busy, not as silent.
    if (cpuSecondsNow - process.worked.cpuSeconds >= WORK_SECONDS) {
      process.worked = { at: performance.now(), cpuSeconds: cpuSecondsNow }
    }
    const isSilent = performance.now() - Math.max(answered.at, process.worked.at) > silentSeconds * 1_000
    if (process.isPinged && spent > cpuSeconds) return end(process, endingByCpu(residentMiB))
    if (process.isPinged && isSilent) return end(process, 'silent')
    if (process.isPinged || (spent < WORK_SECONDS && !isSilent)) return
    process.isPinged = true
    answered.at = performance.now()
    // Processor time before the ping does not count, such as that of its start: a busy machine delays pings.
    if (process.hasAnswered && usage) answered.cpuSeconds = usage.cpuSeconds
    process.hasAnswered = false
    void ask(process, 'alive').then(async (reply) => {
      const now = await measure(running.pid)
      process.isPinged = false
      if (reply !== id || !now) return
      answered.cpuSeconds = now.cpuSeconds
      process.hasAnswered = true
    })
  }

  async function replyTo(path = '', about: PlaceRequest & { id: string }): Promise<unknown> {
    if (path === '/place') return placeOf(await place(about))
    if (path === '/busy') return noteReport(about)
    return findEndReason(about.id)
  }

  const serve = async (incoming: IncomingMessage, response: ServerResponse): Promise<void> => {
    if (!isSameSecret(incoming.headers.authorization ?? '', `Bearer ${key}`)) return void response.writeHead(403).end()
    const about = JSON.parse(await text(incoming))
    const result = await replyTo(incoming.url, about)
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
  const watching = setInterval(() => {
    for (const process of processes.values()) void watch(process)
  }, MEASURE_INTERVAL_MS)
  const cron = tickEveryMinute(() => Promise.all(Array.from(processes.values(), (one) => ask(one, 'end-idle'))), onLine)
  return {
    address: `127.0.0.1:${port}`,
    slots: ports.map((each) => `127.0.0.1:${each}`),
    key,
    begin: () => void prepareSpare(),
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
  const { bindings = {}, serviceBindings } = worker as Partial<
    Record<'bindings' | 'serviceBindings', Record<string, unknown>>
  >
  const closed = [...(bindings.CLOSED_PORTS ? [bindings.CLOSED_PORTS] : []), ...ports]
  return {
    ...worker,
    // Only the API uses queues.
    queueProducers: undefined,
    queueConsumers: undefined,
    bindings: { ...bindings, PROGRAMS_KEY: key, PROGRAMS_PROCESS: id, CLOSED_PORTS: closed.join(',') },
    serviceBindings: { ...serviceBindings, API: { external: { address: api, http: CALL_CONTEXT_OPTIONS } } },
  }
}

/** Service bindings through which the API reaches the processes. */
export function programBindings({ address, slots }: Programs): Record<string, unknown> {
  const bindings = slots.map(
    (slot, n) => [slotBinding(n), { external: { address: slot, http: CALL_CONTEXT_OPTIONS } }] as const,
  )
  return { PROGRAMS: { external: { address, http: {} } }, ...Object.fromEntries(bindings) }
}

/** Messages of the runtime for a program that is evicted after its last call, and for a failed fetch, which its caller reports. */
const IRRELEVANT = /script terminated for unknown reasons|^e = .*failed to lookup address information/
export const isRelevantLine = (line: string): boolean => !IRRELEVANT.test(line)
