import type { SystemCtx } from '../../ctx.ts'
import { describeError } from '../../platform/http/log.ts'
import { withTimeout } from '../../platform/timeout.ts'

export const CHECK_MS_MAX = 3_000

/** Runs a check for at most CHECK_MS_MAX. An error is logged and not returned. */
export async function runCheck<T>(
  { log }: SystemCtx,
  check: string,
  work: () => Promise<T>,
): Promise<{ ok: boolean; value?: T }> {
  const timedOut = () => new Error(`no answer within ${CHECK_MS_MAX} ms`)
  try {
    return { ok: true, value: await withTimeout(CHECK_MS_MAX, work(), timedOut) }
  } catch (error) {
    log.error('health_check_failed', { check, error: describeError(error) })
    return { ok: false }
  }
}

type Check<T> = (ctx: SystemCtx) => Promise<T>

/**
 * Caches the result of a check for `ms`, so that frequent polling costs one check in this time. While one request checks, others get
 * the last result: workerd cannot await a promise of another request.
 */
export function cacheCheck<T>(check: Check<T>, ms: number): Check<T> {
  let entry: { result: T; from: number; until: number } | undefined
  return async (ctx) => {
    const now = ctx.now().getTime()
    if (entry && now >= entry.from && now < entry.until) return entry.result
    if (entry && now >= entry.from) entry.until = now + CHECK_MS_MAX
    const result = await check(ctx)
    entry = { result, from: now, until: ctx.now().getTime() + ms }
    return result
  }
}
