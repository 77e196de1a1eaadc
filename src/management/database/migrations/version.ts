const toVersion = (at: Date): string => at.toISOString().replace(/\D/g, '').slice(0, 14)

/** Returns the current second, or the second after the latest version, which may be ahead of the clock. */
export function versionAfter(latest: string | undefined, now: Date): string {
  const present = toVersion(now)
  if (latest === undefined || latest < present) return present
  const at = Date.parse(latest.replace(/(....)(..)(..)(..)(..)(..)/, '$1-$2-$3T$4:$5:$6Z'))
  return Number.isNaN(at) ? String(Number(latest) + 1) : toVersion(new Date(at + 1_000))
}
