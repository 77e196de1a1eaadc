import { readdir, readFile, readlink } from 'node:fs/promises'
import { totalmem } from 'node:os'
import { setTimeout as delay } from 'node:timers/promises'

const MiB = 1024 ** 2
const SHARE = 2
const MIB_MAX = 8 * 1024

/** What is outside the heap nobody else bounds. */
export const memoryMiBMax = (): number => Math.min(Math.floor(totalmem() / SHARE / MiB), MIB_MAX)

/** The child of this process that listens there; undefined where the system does not tell (it is not Linux). */
export async function childAt(port: number): Promise<number | undefined> {
  try {
    const inode = inodeAt(await readFile('/proc/net/tcp', 'utf8'), port)
    if (inode === undefined) return undefined
    for (const pid of await childrenOf(process.pid)) if (await holds(pid, `socket:[${inode}]`)) return pid
  } catch {}
  return undefined
}

const LISTENS = '0A'

function inodeAt(table: string, port: number): string | undefined {
  const ending = `:${port.toString(16).toUpperCase().padStart(4, '0')}`
  const rows = table.split('\n').map((row) => row.trim().split(/\s+/))
  return rows.find(([, local, , state]) => local?.endsWith(ending) && state === LISTENS)?.[9]
}

async function childrenOf(pid: number): Promise<number[]> {
  const threads = await readdir(`/proc/${pid}/task`)
  const lists = await Promise.all(
    threads.map((thread) => readFile(`/proc/${pid}/task/${thread}/children`, 'utf8').catch(() => '')),
  )
  return lists.flatMap((list) => list.split(' ').filter(Boolean).map(Number))
}

async function holds(pid: number, socket: string): Promise<boolean> {
  const folder = `/proc/${pid}/fd`
  const files = await readdir(folder).catch(() => [])
  const targets = await Promise.all(files.map((file) => readlink(`${folder}/${file}`).catch(() => '')))
  return targets.includes(socket)
}

/** What it has in memory; 0 where nobody tells. */
export async function residentMiB(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '')
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1] ?? 0) / 1024
}

/** So often a process is looked at. */
export const LOOKED_AT_MS = 250

/** Of the child of this process that listens there, until `end`. */
export function watchMemory(port: number, mibMax = memoryMiBMax()): { tooLarge: AbortSignal; end(): void } {
  const [large, ended] = [new AbortController(), new AbortController()]
  const watch = async () => {
    const pid = await childAt(port)
    if (pid === undefined) return
    while (!ended.signal.aborted) {
      if ((await residentMiB(pid)) > mibMax) return large.abort()
      await delay(LOOKED_AT_MS, undefined, { signal: ended.signal }).catch(() => {})
    }
  }
  void watch()
  return { tooLarge: large.signal, end: () => ended.abort() }
}
