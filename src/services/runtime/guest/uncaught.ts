import { printError } from './print-error.ts'

/** Dispatches an error that nothing caught as an event, and logs it unless the program prevents that. */
function report(error: unknown): void {
  const program = globalThis as unknown as EventTarget<{ error: ErrorEvent }>
  let isPrevented = false
  try {
    const event = new ErrorEvent('error', { error, message: `Uncaught ${error}`, cancelable: true })
    isPrevented = !program.dispatchEvent(event)
  } catch {
    // The thrown value has no text, or a listener has thrown.
  }
  if (!isPrevented) printError(error)
}

/** Returns a function that reports what the callback throws. The runtime would only end the task, or close the socket. */
export const reporting =
  <Args extends unknown[], Result>(callback: (...args: Args) => Result) =>
  (...args: Args): Result | undefined => {
    try {
      return callback(...args)
    } catch (error) {
      report(error)
    }
  }

export function installUncaught(): void {
  globalThis.reportError = report
  const names = ['setTimeout', 'setInterval', 'queueMicrotask'] as const
  for (const name of names) {
    const value = new Proxy(globalThis[name], {
      apply: (target, self, [callback, ...rest]) =>
        Reflect.apply(target, self, [typeof callback === 'function' ? reporting(callback) : callback, ...rest]),
    })
    Object.defineProperty(globalThis, name, { value, configurable: true, writable: true })
  }
}
