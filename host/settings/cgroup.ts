import { mkdir, readFile, rmdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { sizeNamed } from './sizes.ts'

/** Limits for the memory and processors of instances, enforced by the kernel. */
export interface Limits {
  /** Limits a server and its child processes to its size. After a failure the instance runs unlimited. */
  assign(instance: { name: string; size: string; pid: number }): Promise<void>
  /** Removes the control group of a stopped instance. */
  remove(name: string): Promise<void>
}

/** The limits of a machine that supports none: there, a size only sets Postgres settings. */
const NO_LIMITS: Limits = { assign: async () => {}, remove: async () => {} }

const CONTROLLERS = ['cpu', 'memory']
const PERIOD_US = 100_000

/** Uses a subtree of the machine's control groups (version 2), if the daemon is root and the controllers are available. */
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
    assign: (instance) => assign(folder, instance),
    remove: (name) => remove(join(folder, name)),
  }
}

/** Enables the controllers for the child groups. */
async function enable(group: string): Promise<void> {
  const offered = words(await readFile(join(group, 'cgroup.controllers'), 'utf8'))
  if (!CONTROLLERS.every((name) => offered.includes(name))) throw new Error('no controllers')
  const file = join(group, 'cgroup.subtree_control')
  const enabled = words(await readFile(file, 'utf8'))
  const missing = CONTROLLERS.filter((name) => !enabled.includes(name))
  if (missing.length > 0) await writeFile(file, missing.map((name) => `+${name}`).join(' '))
}

async function assign(folder: string, instance: { name: string; size: string; pid: number }): Promise<void> {
  const { name, size, pid } = instance
  // The control database has no size: it must never be throttled for the sake of a project.
  if (name === 'control') return
  const group = join(folder, name)
  const { memoryBytes, cpus } = sizeNamed(size)
  try {
    await mkdir(group, { recursive: true })
    await writeFile(join(group, 'memory.max'), String(memoryBytes))
    await writeFile(join(group, 'cpu.max'), `${cpus * PERIOD_US} ${PERIOD_US}`)
    await writeFile(join(group, 'cgroup.procs'), String(pid))
    // Child processes that were started before are still in the old group.
    for (const child of await childrenOf(pid)) await writeFile(join(group, 'cgroup.procs'), child).catch(() => {})
  } catch {
    // The instance runs without limits then.
  }
}

const childrenOf = async (pid: number): Promise<string[]> =>
  words(await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8').catch(() => ''))

const words = (text: string): string[] => text.split(/\s+/).filter((word) => word !== '')

/** The kernel refuses to remove a group with processes; the next start of the instance uses the group again. */
const remove = (group: string): Promise<void> => rmdir(group).catch(() => {})
