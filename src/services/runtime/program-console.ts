import { WorkerEntrypoint } from 'cloudflare:workers'
import type { ConsoleLine } from '../../model/tables/index.ts'
import type { Bindings } from '../../platform/bindings.ts'
import { UUID } from '../../platform/identifiers.ts'
import { LINES_MAX, recordLines, storableMessage } from './call-recorder.ts'

const LEVELS = ['log', 'info', 'warn', 'error', 'debug']

/** Receives the console output of programs. A program can also call it directly, so all arguments are untrusted. */
export class FunctionConsole extends WorkerEntrypoint<Bindings, { ref: string; programId: string }> {
  write(id: unknown, lines: unknown): void {
    if (typeof id !== 'string' || !UUID.test(id) || !Array.isArray(lines)) return
    const host = { bindings: this.env, execution: this.ctx }
    recordLines(host, this.ctx.props, id, lines.slice(0, LINES_MAX + 1).flatMap(lineOf))
  }
}

function lineOf(line: unknown): ConsoleLine[] {
  if (typeof line !== 'object' || line === null) return []
  const { level, message, at } = line as Record<string, unknown>
  if (typeof message !== 'string') return []
  return [
    {
      level: LEVELS.find((known) => known === level) ?? 'log',
      message: storableMessage(message),
      at: new Date(timeOf(at)).toISOString(),
    },
  ]
}

const PAST_MS_MAX = 86_400_000
/** Tolerance for clock differences. */
const FUTURE_MS_MAX = 60_000

/** Replaces an implausible time with the current one: the program may send any value. */
function timeOf(at: unknown): number {
  const now = Date.now()
  const time = typeof at === 'string' ? Date.parse(at) : Number.NaN
  return time <= now + FUTURE_MS_MAX && time >= now - PAST_MS_MAX ? time : now
}
