import { AsyncLocalStorage } from 'node:async_hooks'
import { type ChildProcess, execFile } from 'node:child_process'
import { subscribe } from 'node:diagnostics_channel'
import { readFile, writeFile } from 'node:fs/promises'
import { setPriority } from 'node:os'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import { usableMemoryBytes } from '../host/memory.ts'

const MiB = 1024 ** 2
const SHARE = 2
const MIB_MAX = 8 * 1024

/** Memory limit for code and data that users send: nothing else bounds memory outside the JavaScript heap. */
export const memoryMiBMax = (): number => Math.min(Math.floor(usableMemoryBytes() / SHARE / MiB), MIB_MAX)

const hasProc = process.platform === 'linux'
/** Time between two measurements of a process; longer if each measurement starts a process. */
export const MEASURE_INTERVAL_MS = hasProc ? 250 : 1_000

const spawning = new AsyncLocalStorage<ChildProcess[]>()
const spawningAs = new AsyncLocalStorage<string>()
const roles = new Map<ChildProcess, string>()
let isSubscribed = false

function observeSpawns(): void {
  if (isSubscribed) return
  isSubscribed = true
  subscribe('child_process', (message) => {
    const { process: child } = message as { process: ChildProcess }
    spawning.getStore()?.push(child)
    const role = spawningAs.getStore()
    if (role === undefined) return
    roles.set(child, role)
    child.once('exit', () => roles.delete(child))
  })
}

/** Runs the work, and returns the processes that it has spawned, also inside libraries. */
export async function spawnedBy<T>(work: () => Promise<T>): Promise<{ result: T; children: ChildProcess[] }> {
  observeSpawns()
  const children: ChildProcess[] = []
  return { result: await spawning.run(children, work), children }
}

/** Runs the work; processes that it starts, now or later, have this role. */
export function spawnAs<T>(role: string, work: () => T): T {
  observeSpawns()
  return spawningAs.run(role, work)
}

/** Resident memory in bytes of this process and of those with a role, if the operating system reports it. */
export async function memoryByRole(): Promise<Record<string, number>> {
  const memory: Record<string, number> = { supervisor: process.memoryUsage.rss() }
  const usages = Array.from(roles, async ([{ pid }, role]) => ({ role, usage: await usageOf(pid) }))
  for (const { role, usage } of await Promise.all(usages)) {
    if (usage) memory[role] = (memory[role] ?? 0) + usage.residentMiB * MiB
  }
  return memory
}

export interface Usage {
  /** Processor time of all threads since the start. */
  cpuSeconds: number
  residentMiB: number
}

const TICKS_PER_SECOND = 100
/** Indexes of fields in /proc/<pid>/stat, counted from the closing parenthesis of the name. */
const [USER_TICKS, SYSTEM_TICKS] = [11, 12]

/** Undefined if the process has ended, or the operating system does not report its usage. */
export async function usageOf(pid: number | undefined): Promise<Usage | undefined> {
  if (pid === undefined) return undefined
  return hasProc ? usageFromProc(pid) : usageFromPs(pid)
}

async function usageFromProc(pid: number): Promise<Usage | undefined> {
  const read = (name: string) => readFile(`/proc/${pid}/${name}`, 'utf8').catch(() => '')
  // Unlike `stat`, `status` does not count in pages, whose size depends on the machine.
  const [stat, status] = await Promise.all([read('stat'), read('status')])
  if (stat === '') return undefined
  const fields = stat
    .slice(stat.lastIndexOf(')') + 2)
    .split(' ')
    .map(Number)
  const at = (index: number) => fields[index] ?? 0
  return {
    cpuSeconds: (at(USER_TICKS) + at(SYSTEM_TICKS)) / TICKS_PER_SECOND,
    residentMiB: Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1] ?? 0) / 1024,
  }
}

/** Reads the usage on macOS, which has no /proc. */
export async function usageFromPs(pid: number | undefined): Promise<Usage | undefined> {
  const printed = await promisify(execFile)('ps', ['-o', 'time=', '-o', 'rss=', '-p', String(pid)]).catch(
    () => undefined,
  )
  const [time = '', kibibytes] = printed?.stdout.trim().split(/\s+/) ?? []
  const [clock = '', days = '0'] = time.split('-').reverse()
  // [hours:]minutes:seconds
  const cpuSeconds = clock.split(':').reduce((sum, part) => sum * 60 + Number(part), 0) + Number(days) * 86_400
  const usage = { cpuSeconds, residentMiB: Number(kibibytes) / 1024 }
  return Number.isFinite(usage.cpuSeconds + usage.residentMiB) ? usage : undefined
}

/** Watches the memory of a process until `end`. */
export function watchMemory(pid: number | undefined, mibMax = memoryMiBMax()): { tooLarge: AbortSignal; end(): void } {
  const [large, ended] = [new AbortController(), new AbortController()]
  const watch = async () => {
    while (!ended.signal.aborted) {
      const usage = await usageOf(pid)
      if (!usage) return
      if (usage.residentMiB > mibMax) return large.abort()
      await delay(MEASURE_INTERVAL_MS, undefined, { signal: ended.signal }).catch(() => {})
    }
  }
  void watch()
  return { tooLarge: large.signal, end: () => ended.abort() }
}

/**
 * Priorities: after the API and the databases come programs and the builder, then programs that ended a process before. Beside
 * other work on each core, a process of priority 19 gets about 1 % of one: the innocent among the suspects would hardly run, and a
 * faulty one would take minutes to show itself.
 */
export const NICE = { programs: 5, suspect: 10 }

/** Score of a process for the kernel's out-of-memory killer, which then ends the process before any database. */
const OUT_OF_MEMORY_SCORE = '600'

/** Lowers the process's priority and raises its out-of-memory score, if the system allows it. */
export function lowerPriority(pid: number | undefined, nice: number): void {
  if (pid === undefined) return
  try {
    setPriority(pid, nice)
  } catch {}
  writeFile(`/proc/${pid}/oom_score_adj`, OUT_OF_MEMORY_SCORE).catch(() => {})
}
