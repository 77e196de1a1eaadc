import { logLine } from '../src/platform/http/log.ts'

const MINUTE_MS = 60_000

/** Calls `tick` at once and then at every full minute of the wall clock, as the platform's cron does. */
export function tickEveryMinute(
  tick: (scheduledTime: Date) => Promise<unknown>,
  onLine: (line: string) => void,
): { tickNow(): void; stop(): void } {
  let timer: NodeJS.Timeout
  let isStopped = false
  // The next minute tries again. A tick that the end of the installation interrupts is not a failure.
  const run = (at: Date) =>
    tick(at).catch((error) => {
      if (!isStopped) onLine(logLine('error', 'cron_tick_failed', { error: String(error) }))
    })
  function plan() {
    const next = new Date(Math.floor(Date.now() / MINUTE_MS + 1) * MINUTE_MS)
    timer = setTimeout(() => {
      void run(next)
      plan()
    }, next.getTime() - Date.now())
  }
  void run(new Date())
  plan()
  return {
    tickNow: () => void run(new Date()),
    stop() {
      isStopped = true
      clearTimeout(timer)
    },
  }
}
