import { BoundedMap } from '../../platform/bounded-map.ts'

const ISOLATES_MAX = 1_000

/** The runtime caches the failure of an isolate that did not start, so each new attempt needs a new name. */
const attempts = new BoundedMap<string, { number: number; at: number }>(ISOLATES_MAX)
/**
 * Load failures caused by the platform, by isolate name: all waiting calls need to know, not only the one that loads.
 */
const loadFailures = new BoundedMap<string, unknown>(ISOLATES_MAX)

let restarts = 0

const RESTART_DELAY_MS = 1_000

export function attemptName(base: string): string {
  const attempt = attempts.get(base)
  return attempt ? `${base}:${attempt.number}` : base
}

/** Gives the program a new isolate name after the isolate `name` failed. Does nothing if another call already did. */
export function allowRestart(base: string, name: string, isPlatformFault: boolean): void {
  if (attemptName(base) !== name) return
  const now = Date.now()
  // Without the delay, each call of a program that cannot start would load it again.
  if (!isPlatformFault && now - (attempts.get(base)?.at ?? 0) < RESTART_DELAY_MS) return
  restarts += 1
  attempts.set(base, { number: restarts, at: now })
}

export const noteLoadFailure = (name: string, cause: unknown): void =>
  void loadFailures.set(name, cause ?? new Error('unknown'))

/** Why the code of an isolate could not be loaded; undefined if it was loaded. */
export const loadFailureOf = (name: string): unknown => loadFailures.get(name)
