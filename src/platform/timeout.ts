/** Returns the result of `work`, or rejects with the error of `createError` if it has not settled after `ms`. */
export async function withTimeout<Value>(ms: number, work: Promise<Value>, createError: () => Error): Promise<Value> {
  let timer: ReturnType<typeof setTimeout> | undefined
  const tooLate = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(createError()), ms)
  })
  try {
    return await Promise.race([work, tooLate])
  } finally {
    clearTimeout(timer)
  }
}

/** A signal that aborts after some time. Clear it when the work ends: otherwise the timers of thousands of requests fill the memory. */
export interface Timeout {
  signal: AbortSignal
  clear(): void
}

/** Creates a signal that aborts with a `TimeoutError` after `ms`. */
export function timeout(ms: number): Timeout {
  const controller = new AbortController()
  const timer = setTimeout(() => controller.abort(new DOMException('too late', 'TimeoutError')), ms)
  return { signal: controller.signal, clear: () => clearTimeout(timer) }
}
