import { BoundedMap } from '../../../platform/bounded-map.ts'
import { keyOf, type ProgramName } from './process-protocol.ts'

/** Exceeds the lifetime of all cache entries of programs. */
const RECENT_MS = 5_000
const PROJECTS_MAX = 1_000

/** Time of the last change to a project's programs or their environment made by this process, by project. */
const changes = new BoundedMap<string, number>(PROJECTS_MAX)

export function recordChange(ref: string): void {
  changes.set(ref, Date.now())
}

/** The time of a project's last change; undefined if it is so old that all caches have expired. */
export function findRecentChange({ ref }: ProgramName): number | undefined {
  const at = changes.get(ref)
  if (at === undefined || Date.now() - at < RECENT_MS) return at
  changes.delete(ref)
  return undefined
}

const APPLIED_MAX = 10_000
const applied = new BoundedMap<string, number>(APPLIED_MAX)

/** Returns whether a change that another process reports is new to this one, and records it. */
export function claimChange(program: ProgramName, at: number): boolean {
  const key = keyOf(program)
  if (at <= (applied.get(key) ?? 0)) return false
  applied.set(key, at)
  return true
}
