import { sql } from 'drizzle-orm'
import { createCtx } from '../ctx.ts'
import type { Db } from '../db/client.ts'
import type { ConsoleLine } from '../db/schema/index.ts'
import type { Bindings, SystemCtx } from '../env.ts'
import { describeError } from '../http/log.ts'

/** One call of a program, as it is written in the end. */
interface Invocation {
  id: string
  kind: 'function' | 'worker'
  projectRef: string
  programId: string
  deploymentId: string
  method: string
  path: string
  /** Epoch milliseconds. */
  at: number
  status: number
  ms: number
  console: ConsoleLine[]
}
type Started = Omit<Invocation, 'status' | 'ms' | 'console'>

interface Owner {
  ref: string
  programId: string
}

interface LateLines extends Owner {
  id: string
  console: ConsoleLine[]
}

const WRITTEN_AFTER_MS = 500
const PORTION = 1_000
/** The request that writes goes on for others so long. */
const WRITES_FOR_MS = 20_000
const KEPT_MAX = 20_000
const CONSOLE_LENGTH_MAX = 16 * 1024 * 1024
/** After it none can be under way: its caller has gone away. */
const RUNNING_MS_MAX = 160_000
export const LINES_MAX = 100
const PATH_LENGTH_MAX = 1_024

const running = new Map<string, Invocation>()
const ended = new Map<string, Invocation>()
const late: LateLines[] = []
let consoleLength = 0
let dropped = 0
let writingSince = 0

export function begin(started: Started): void {
  if (running.size >= KEPT_MAX) {
    const [oldest] = running.keys()
    if (oldest !== undefined) running.delete(oldest)
    dropped += 1
  }
  running.set(started.id, { ...started, path: started.path.slice(0, PATH_LENGTH_MAX), status: 0, ms: 0, console: [] })
}

interface Host {
  bindings: Bindings
  execution: Pick<ExecutionContext, 'waitUntil'>
}

/** `problem` is what the program could not print itself. */
export function end(
  host: Host,
  id: string,
  { status, ms, problem }: { status: number; ms: number; problem?: string },
): void {
  const invocation = running.get(id)
  if (!invocation) return
  running.delete(id)
  if (problem !== undefined) addLines(invocation.console, [errorLine(problem)])
  if (ended.size >= KEPT_MAX) dropped += 1
  else ended.set(id, Object.assign(invocation, { status, ms }))
  writeSoon(host)
}

/** Postgres stores neither NUL nor halves of characters. */
const errorLine = (problem: string): ConsoleLine => ({
  level: 'error',
  message: problem.replaceAll('\0', '').toWellFormed().slice(0, 10_000),
  at: new Date().toISOString(),
})

/** What a program printed in one of its calls; one that is another's is not there for it. */
export function print(host: Host, owner: Owner, id: string, lines: readonly ConsoleLine[]): void {
  const invocation = running.get(id) ?? ended.get(id)
  if (!invocation) {
    const console: ConsoleLine[] = []
    addLines(console, lines)
    if (late.length < KEPT_MAX) late.push({ ...owner, id, console })
  } else if (invocation.projectRef === owner.ref && invocation.programId === owner.programId) {
    addLines(invocation.console, lines)
  }
  writeSoon(host)
}

function addLines(console: ConsoleLine[], lines: readonly ConsoleLine[]): void {
  for (const line of lines) {
    if (console.length >= LINES_MAX || consoleLength > CONSOLE_LENGTH_MAX) return
    consoleLength += line.message.length
    console.push(line)
  }
}

function writeSoon({ bindings, execution }: Host): void {
  const now = Date.now()
  if (writingSince > 0 && now - writingSince < 2 * WRITES_FOR_MS) return
  writingSince = now
  const waitUntil = (work: Promise<unknown>) => execution.waitUntil(work)
  waitUntil(writeWhileThereAre(createCtx({ bindings, waitUntil })))
}

async function writeWhileThereAre(ctx: SystemCtx): Promise<void> {
  const since = Date.now()
  try {
    do {
      await scheduler.wait(WRITTEN_AFTER_MS)
      await writeAll(ctx)
    } while (ended.size + late.length > 0 && Date.now() - since < WRITES_FOR_MS)
  } finally {
    writingSince = 0
  }
}

async function writeAll(ctx: SystemCtx): Promise<void> {
  endAbandoned()
  const rows = [...ended.values()]
  const lines = late.splice(0)
  ended.clear()
  consoleLength = 0
  for (let from = 0; from < rows.length; from += PORTION) {
    const portion = rows.slice(from, from + PORTION)
    await attempt(ctx, portion.length, () => insert(ctx.db, portion))
  }
  if (lines.length > 0) await attempt(ctx, 0, () => append(ctx.db, lines))
  if (dropped === 0) return
  ctx.log.error('invocations_dropped', { invocations: dropped })
  dropped = 0
}

/** Calls come in the order in which they began. */
function endAbandoned(): void {
  const now = Date.now()
  for (const [id, invocation] of running) {
    if (now - invocation.at < RUNNING_MS_MAX) return
    running.delete(id)
    ended.set(id, { ...invocation, ms: now - invocation.at })
  }
}

async function attempt({ log }: SystemCtx, count: number, write: () => Promise<unknown>): Promise<void> {
  try {
    await write().catch(write)
  } catch (error) {
    dropped += count
    log.error('failed', { code: 'invocations', error: describeError(error) })
  }
}

const insert = (db: Db, rows: readonly Invocation[]) =>
  db.execute(sql`
    insert into invocations (id, kind, project_ref, program_id, deployment_id, method, path, status, ms, console, at)
    select id, kind, "projectRef", "programId", "deploymentId", method, path, status, ms, console, to_timestamp(at / 1000)
    from json_to_recordset(${JSON.stringify(rows)}::json) as r (id uuid, kind text, "projectRef" text, "programId" uuid,
      "deploymentId" uuid, method text, path text, status int, ms int, console jsonb, at double precision)
    on conflict do nothing`)

const append = (db: Db, lines: readonly LateLines[]) =>
  db.execute(sql`
    update invocations i set console = i.console || l.console
    from (
      select id, ref, "programId", jsonb_agg(line order by number) as console
      from json_to_recordset(${JSON.stringify(lines)}::json) as r (id uuid, ref text, "programId" uuid, console jsonb),
        jsonb_array_elements(r.console) with ordinality as e (line, number)
      group by id, ref, "programId"
    ) l
    where i.id = l.id and i.project_ref = l.ref and i.program_id = l."programId"
      and jsonb_array_length(i.console) + jsonb_array_length(l.console) <= ${LINES_MAX}`)
