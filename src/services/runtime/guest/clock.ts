const plainNow = performance.now.bind(performance)
/** Before its first request no time passes for a program. */
let origin = 0

export function installClock(): void {
  Object.defineProperties(performance, {
    now: { value: () => plainNow() - origin, configurable: true, writable: true },
    timeOrigin: { get: () => origin, configurable: true },
  })
}

export function startClock(): void {
  origin ||= plainNow()
}
