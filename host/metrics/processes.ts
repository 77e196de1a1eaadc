import { readdir, readFile } from 'node:fs/promises'

/** Resource usage of all processes of a server. */
export interface ProcessUse {
  processes: number
  /** Includes processes that have ended. */
  cpu_seconds: number
  /** Counts shared memory once. Undefined if the operating system does not report it. */
  memory_bytes?: number
  uptime_seconds: number
}

/** Clock ticks in /proc, the same on all Linux machines. */
const TICKS_PER_SECOND = 100

/** Undefined if the operating system does not report it. */
export async function processUse(pid: number): Promise<ProcessUse | undefined> {
  const uptime = await readFile('/proc/uptime', 'utf8').catch(() => undefined)
  const own = await statOf(pid).catch(() => undefined)
  if (uptime === undefined || !own) return undefined
  const children = await childrenOf(pid)
  const stats = await Promise.all(children.map((child) => statOf(child).catch(() => undefined)))
  const [first, ...others] = await Promise.all([pid, ...children].map((each) => memoryOf(each).catch(() => undefined)))
  const ticks = stats.reduce((total, stat) => total + (stat?.ticks ?? 0), own.ticks + own.ticksOfEnded)
  return {
    processes: 1 + children.length,
    cpu_seconds: ticks / TICKS_PER_SECOND,
    ...(first !== undefined && { memory_bytes: others.reduce<number>((total, bytes = 0) => total + bytes, first) }),
    uptime_seconds: Math.max(0, Number.parseFloat(uptime) - own.startedAt / TICKS_PER_SECOND),
  }
}

async function statOf(pid: number | string) {
  const text = await readFile(`/proc/${pid}/stat`, 'utf8')
  // The program's name, in parentheses, may contain anything; the parent's pid is the second field after it.
  const fields = text
    .slice(text.lastIndexOf(')') + 4)
    .split(' ')
    .map(Number)
  const [user = 0, system = 0, userOfEnded = 0, systemOfEnded = 0] = fields.slice(10)
  const ticks = { ticks: user + system, ticksOfEnded: userOfEnded + systemOfEnded }
  return { parent: fields[0], startedAt: fields[18] ?? 0, ...ticks }
}

/** Lists the children of a process; on kernels without such a list, by the parent of every process. */
async function childrenOf(pid: number): Promise<number[]> {
  const listed = await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8').catch(() => undefined)
  if (listed !== undefined) return listed.split(' ').filter(Boolean).map(Number)
  const all = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  const stats = await Promise.all(all.map((each) => statOf(each).catch(() => undefined)))
  return all.map(Number).filter((_, n) => stats[n]?.parent === pid)
}

async function memoryOf(pid: number): Promise<number> {
  const text = await readFile(`/proc/${pid}/smaps_rollup`, 'utf8')
  return Number(/^Pss:\s+(\d+) kB$/m.exec(text)?.[1]) * 1024
}
