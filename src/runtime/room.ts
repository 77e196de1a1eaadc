/** What lines that are not yet written may take together, and those of one project; in characters. */
const LENGTH_MAX = 16 * 1024 * 1024
const PROJECT_LENGTH_MAX = 4 * 1024 * 1024
/** What a project may print for long: the control database keeps it for a week, and strangers may call. */
const LENGTH_A_MINUTE = 1024 * 1024
const PROJECTS_MAX = 10_000

let taken = 0
const takenBy = new Map<string, number>()
/** What a project may print at once, which fills up again. */
const left = new Map<string, { length: number; at: number }>()

function leftFor(projectRef: string, now: number): number {
  const known = left.get(projectRef)
  if (!known) return PROJECT_LENGTH_MAX
  const filled = (Math.max(0, now - known.at) / 60_000) * LENGTH_A_MINUTE
  return Math.min(PROJECT_LENGTH_MAX, known.length + filled)
}

/** False where there is none left. */
export function takeRoom(projectRef: string, length: number, now: number): boolean {
  const own = (takenBy.get(projectRef) ?? 0) + length
  if (taken + length > LENGTH_MAX || own > PROJECT_LENGTH_MAX) return false
  const printable = leftFor(projectRef, now)
  if (length > printable) return false
  if (left.size >= PROJECTS_MAX) left.clear()
  left.set(projectRef, { length: printable - length, at: now })
  taken += length
  takenBy.set(projectRef, own)
  return true
}

export function giveRoom(projectRef: string, length: number): void {
  taken -= length
  const own = (takenBy.get(projectRef) ?? 0) - length
  if (own > 0) takenBy.set(projectRef, own)
  else takenBy.delete(projectRef)
}
