import { readdir, readFile } from 'node:fs/promises'
import { basename } from 'node:path'

export interface ProcessMemory {
  program: string
  pid: number
  /** Its proportional set size: each shared page counts in part. */
  bytes: number
}

/** Memory of a process and of all its descendants, the largest first. Only Linux reports it. */
export async function processTreeMemory(root: number): Promise<ProcessMemory[]> {
  const parents = new Map<number, number>()
  for (const pid of (await readdir('/proc')).map(Number).filter((id) => id > 0)) {
    const stat = await read(pid, 'stat')
    parents.set(pid, Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]))
  }
  const pids = [root]
  for (const pid of pids) for (const [child, parent] of parents) if (parent === pid) pids.push(child)
  const memory = await Promise.all(
    pids.map(async (pid) => ({ program: await programOf(pid), pid, bytes: await pssOf(pid) })),
  )
  return memory.filter(({ bytes }) => bytes > 0).sort((a, b) => b.bytes - a.bytes)
}

async function pssOf(pid: number): Promise<number> {
  return Number(/^Pss:\s+(\d+) kB$/m.exec(await read(pid, 'smaps_rollup'))?.[1] ?? 0) * 1024
}

async function programOf(pid: number): Promise<string> {
  const [program = ''] = (await read(pid, 'cmdline')).split('\0')
  // Postgres's processes write what they do over their command line.
  return program.startsWith('postgres: ') ? 'postgres' : basename(program)
}

/** Reads a file of a process below /proc; empty once the process has ended. */
const read = (pid: number, file: string): Promise<string> => readFile(`/proc/${pid}/${file}`, 'utf8').catch(() => '')
