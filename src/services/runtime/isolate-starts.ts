import { setNewest } from '../../platform/bounded-map.ts'

/** The runtime goes on giving the failure of an isolate that did not start; another attempt needs another name. */
const attempts = new Map<string, { number: number; at: number }>()
/** What of ours failed, by the name of the isolate: all who wait for it are told, and not only the one who has it loaded. */
const loadFailures = new Map<string, unknown>()

let startedAnew = 0

const KEPT_MAX = 1_000
const RESTARTED_AFTER_MS = 1_000

export function attemptName(base: string): string {
  const attempt = attempts.get(base)
  return attempt ? `${base}:${attempt.number}` : base
}

/** For who met the failure of the isolate `name`; when another has been there before there is nothing left to do. */
export function allowRestart(base: string, name: string, isOurFault: boolean): void {
  if (attemptName(base) !== name) return
  const now = Date.now()
  // What cannot start would otherwise be loaded as often as somebody calls it.
  if (!isOurFault && now - (attempts.get(base)?.at ?? 0) < RESTARTED_AFTER_MS) return
  startedAnew += 1
  setNewest(attempts, base, { number: startedAnew, at: now }, KEPT_MAX)
}

export const noteLoadFailure = (name: string, cause: unknown): void =>
  setNewest(loadFailures, name, cause ?? new Error('unknown'), KEPT_MAX)

/** Undefined where its code could be read. */
export const loadFailureOf = (name: string): unknown => loadFailures.get(name)
