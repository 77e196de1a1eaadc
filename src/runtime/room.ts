/** What lines that are not yet written may take together, and those of one project; in characters. */
const LENGTH_MAX = 16 * 1024 * 1024
const PROJECT_LENGTH_MAX = 4 * 1024 * 1024

let taken = 0
const takenBy = new Map<string, number>()

/** False where there is none left. */
export function takeRoom(projectRef: string, length: number): boolean {
  const own = (takenBy.get(projectRef) ?? 0) + length
  if (taken + length > LENGTH_MAX || own > PROJECT_LENGTH_MAX) return false
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
