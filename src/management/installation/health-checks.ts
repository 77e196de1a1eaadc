import type { SystemCtx } from '../../ctx.ts'
import { describeError } from '../../platform/http/log.ts'

export const CHECK_MS_MAX = 3_000

/** Never longer than CHECK_MS_MAX; what went wrong goes to the log alone. */
export async function attempt<T>(
  { log }: SystemCtx,
  check: string,
  work: () => Promise<T>,
): Promise<{ ok: boolean; value?: T }> {
  let timer: ReturnType<typeof setTimeout> | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${CHECK_MS_MAX} ms`)), CHECK_MS_MAX)
  })
  try {
    return { ok: true, value: await Promise.race([work(), late]) }
  } catch (error) {
    log.error('health_check_failed', { check, error: describeError(error) })
    return { ok: false }
  } finally {
    clearTimeout(timer)
  }
}

type Check<T> = (ctx: SystemCtx) => Promise<T>

/**
 * The last result is given out again for `ms`, so that frequent polling costs no more than one check in this time. While one
 * request checks, others get the last result: a promise cannot be awaited across requests in workerd.
 */
export function cached<T>(check: Check<T>, ms: number): Check<T> {
  let kept: { result: T; from: number; until: number } | undefined
  return async (ctx) => {
    const now = ctx.now().getTime()
    if (kept && now >= kept.from && now < kept.until) return kept.result
    if (kept && now >= kept.from) kept.until = now + CHECK_MS_MAX
    const result = await check(ctx)
    kept = { result, from: now, until: ctx.now().getTime() + ms }
    return result
  }
}
