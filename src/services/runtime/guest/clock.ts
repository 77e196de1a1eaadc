const plainNow = performance.now.bind(performance)
/** The start of `performance`: the first request, because the runtime's clock stands still before it. */
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
