/** Resolves to undefined if `work` has not settled after `ms`; it goes on, and its outcome is ignored. */
export async function awaitWithin<Value>(ms: number, work: PromiseLike<Value>): Promise<{ value: Value } | undefined> {
  let timer: ReturnType<typeof setTimeout> | undefined
  const tooLate = new Promise<undefined>((resolve) => {
    timer = setTimeout(resolve, ms, undefined)
  })
  try {
    return await Promise.race([work.then((value) => ({ value })), tooLate])
  } finally {
    clearTimeout(timer)
  }
}

/** Returns the result of `work`, or rejects with the error of `createError` if it has not settled after `ms`. */
export function withTimeout<Value>(ms: number, work: PromiseLike<Value>, createError: () => Error): Promise<Value> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(createError()), ms)
    work.then(resolve, reject).then(() => clearTimeout(timer))
  })
}

/** Returns the result of `work`, or rejects with `Error(message)` once the signal aborts. */
export function rejectOnAbort<Value>(signal: AbortSignal, work: Promise<Value>, message: string): Promise<Value> {
  const aborted = new Promise<never>((_, reject) => {
    signal.addEventListener('abort', () => reject(new Error(message)), { once: true })
  })
  return Promise.race([work, aborted])
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
