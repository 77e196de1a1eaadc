import { mkdir, readFile, rmdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { sizeNamed } from './sizes.ts'

/** Bounds of memory and processors that the kernel holds instances to. */
export interface Limits {
  /** False where the machine cannot: then sizes set Postgres's own values and nothing more. */
  readonly isActive: boolean
  /** Holds the server and what it starts to its size. Resolves to false if that failed; the instance runs on without. */
  assign(instance: { name: string; size: string; pid: number }): Promise<boolean>
  /** Of an instance that has ended. */
  remove(name: string): Promise<void>
}

const NO_LIMITS: Limits = { isActive: false, assign: async () => false, remove: async () => {} }

const CONTROLLERS = ['cpu', 'memory']
const PERIOD_US = 100_000

/** Takes a subtree of the machine's control groups (version 2), if the daemon is root and its controllers can be had. */
export async function openLimits(root = '/sys/fs/cgroup', isRoot = process.getuid?.() === 0): Promise<Limits> {
  const folder = join(root, 'pilothouse')
  if (!isRoot) return NO_LIMITS
  try {
    await enable(root)
    await mkdir(folder, { recursive: true })
    await enable(folder)
  } catch {
    return NO_LIMITS
  }
  return {
    isActive: true,
    assign: (instance) => assign(folder, instance),
    remove: (name) => remove(join(folder, name)),
  }
}

/** Lets the groups within have the controllers. */
async function enable(group: string): Promise<void> {
  const offered = words(await readFile(join(group, 'cgroup.controllers'), 'utf8'))
  if (!CONTROLLERS.every((name) => offered.includes(name))) throw new Error('no controllers')
  const file = join(group, 'cgroup.subtree_control')
  const enabled = words(await readFile(file, 'utf8'))
  const missing = CONTROLLERS.filter((name) => !enabled.includes(name))
  if (missing.length > 0) await writeFile(file, missing.map((name) => `+${name}`).join(' '))
}

async function assign(folder: string, instance: { name: string; size: string; pid: number }): Promise<boolean> {
  const { name, size, pid } = instance
  // The control database has no size: it must never be throttled for the sake of a project.
  if (name === 'control') return false
  const group = join(folder, name)
  const { memoryBytes, cpus } = sizeNamed(size)
  try {
    await mkdir(group, { recursive: true })
    await writeFile(join(group, 'memory.max'), String(memoryBytes))
    await writeFile(join(group, 'cpu.max'), `${cpus * PERIOD_US} ${PERIOD_US}`)
    await writeFile(join(group, 'cgroup.procs'), String(pid))
    // Those that it started before are still where it was.
    for (const child of await childrenOf(pid)) await writeFile(join(group, 'cgroup.procs'), child).catch(() => {})
    return true
  } catch {
    return false
  }
}

const childrenOf = async (pid: number): Promise<string[]> =>
  words(await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8').catch(() => ''))

const words = (text: string): string[] => text.split(/\s+/).filter((word) => word !== '')

/** The kernel refuses while a process is in it; the next start of the instance uses it again. */
const remove = (group: string): Promise<void> => rmdir(group).catch(() => {})
