import { WorkerEntrypoint } from 'cloudflare:workers'
import type { ConsoleLine } from '../../model/tables/index.ts'
import type { Bindings } from '../../platform/bindings.ts'
import { LINES_MAX, messageOf, print } from './call-recorder.ts'

const LEVELS = ['log', 'info', 'warn', 'error', 'debug']
const ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/** Where a program's console goes. The program itself can call it, with anything. */
export class FunctionConsole extends WorkerEntrypoint<Bindings, { ref: string; programId: string }> {
  write(id: unknown, lines: unknown): void {
    if (typeof id !== 'string' || !ID.test(id) || !Array.isArray(lines)) return
    const host = { bindings: this.env, execution: this.ctx }
    print(host, this.ctx.props, id, lines.slice(0, LINES_MAX).flatMap(lineOf))
  }
}

function lineOf(line: unknown): ConsoleLine[] {
  if (typeof line !== 'object' || line === null) return []
  const { level, message, at } = line as Record<string, unknown>
  if (typeof message !== 'string') return []
  return [
    {
      level: LEVELS.find((known) => known === level) ?? 'log',
      message: messageOf(message),
      at: new Date(timeOf(at)).toISOString(),
    },
  ]
}

const BACK_MS_MAX = 86_400_000
/** Clocks differ. */
const AHEAD_MS_MAX = 60_000

/** Not what nobody can have printed: the program may say any time. */
function timeOf(at: unknown): number {
  const now = Date.now()
  const time = typeof at === 'string' ? Date.parse(at) : Number.NaN
  return time <= now + AHEAD_MS_MAX && time >= now - BACK_MS_MAX ? time : now
}
