const MINUTE_MS = 60_000

/** Calls `tick` at once and then at every full minute of the wall clock, as the platform's cron does. */
export function tickEveryMinute(tick: (scheduledTime: Date) => Promise<unknown>): { stop(): void } {
  let timer: NodeJS.Timeout
  function plan() {
    const next = new Date(Math.floor(Date.now() / MINUTE_MS + 1) * MINUTE_MS)
    timer = setTimeout(() => {
      tick(next).catch(reportFailure)
      plan()
    }, next.getTime() - Date.now())
  }
  tick(new Date()).catch(reportFailure)
  plan()
  return { stop: () => clearTimeout(timer) }
}

// The next minute tries again.
function reportFailure(error: unknown) {
  console.error(JSON.stringify({ level: 'error', event: 'cron_tick_failed', message: String(error) }))
}
