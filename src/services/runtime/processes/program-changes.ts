import { setNewest } from '../../../platform/bounded-map.ts'
import { keyOf, type ProgramName } from './process-protocol.ts'

/** Longer than anybody keeps what he has read of a program. */
const KEPT_MS = 5_000
const KEPT_MAX = 1_000

/** By project, when its programs, or what they find in their environment, were last changed here. */
const changes = new Map<string, number>()

export function recordChange(ref: string): void {
  setNewest(changes, ref, Date.now(), KEPT_MAX)
}

/** Undefined where that is so long ago that everybody knows. */
export function findRecentChange({ ref }: ProgramName): number | undefined {
  const at = changes.get(ref)
  if (at === undefined || Date.now() - at < KEPT_MS) return at
  changes.delete(ref)
  return undefined
}

const APPLIED_MAX = 10_000
const applied = new Map<string, number>()

/** Whether the change, which another process has told of, is news here. */
export function claimChange(program: ProgramName, at: number): boolean {
  const key = keyOf(program)
  if (at <= (applied.get(key) ?? 0)) return false
  if (applied.size >= APPLIED_MAX) applied.clear()
  applied.set(key, at)
  return true
}
