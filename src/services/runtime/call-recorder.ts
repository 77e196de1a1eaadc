import { sql } from 'drizzle-orm'
import type { SystemCtx } from '../../ctx.ts'
import type { ConsoleLine } from '../../model/tables/index.ts'
import { BoundedMap } from '../../platform/bounded-map.ts'
import type { Db } from '../../platform/db/client.ts'
import { createRowLimit, PROJECT_ROWS } from '../gateway/row-limit.ts'
import { createWriteBehind, PORTION, type RequestScope, writeInHalves } from '../gateway/write-behind.ts'
import { releaseBuffer, reserveBuffer } from './log-buffer-budget.ts'

/** A row of the invocation log: one call of a program. */
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
  projectRef: string
  console: ConsoleLine[]
  /** Replaces the status that was written. */
  status?: number
}

const BUFFERED_MAX = 20_000
const PORTION_LENGTH_MAX = 4 * 1024 * 1024
/** Longer than any call runs: an older entry was abandoned when its caller disconnected. */
const RUNNING_MS_MAX = 160_000
export const LINES_MAX = 100
const PATH_LENGTH_MAX = 1_024
const MESSAGE_LENGTH_MAX = 10_000
/** Characters that a line needs besides its message, so that empty lines count too. */
const LINE_OVERHEAD = 64

const running = new Map<string, Invocation>()
const ended = new Map<string, Invocation>()
const late: LateLines[] = []
/** Running calls without a row, whose lines are ignored. */
const unlisted = new BoundedMap<string, true>(BUFFERED_MAX)
let dropped = 0
let droppedLines = 0

const scheduleWrite = createWriteBehind({ isEmpty: () => ended.size + late.length === 0, write: writeAll })

const claimRow = createRowLimit(PROJECT_ROWS)

/**
 * Buffers the start of a call that may have a row. When the buffer is full, the oldest entry is dropped. `skipped` is the number of
 * calls without a row before it; a caller that limits its rows itself passes 0.
 */
export function recordStart(started: Started, skipped = claimRow(started.projectRef, started.at)): void {
  if (skipped === undefined) return void unlisted.set(started.id, true)
  if (running.size >= BUFFERED_MAX) {
    const [oldest] = running.keys()
    const abandoned = oldest === undefined ? undefined : running.get(oldest)
    if (abandoned) drop(abandoned)
  }
  const path = truncate(started.path, PATH_LENGTH_MAX)
  const invocation = { ...started, path, status: 0, ms: 0, console: [] }
  running.set(started.id, invocation)
  if (skipped > 0) addLines(invocation, [newLine('info', `${skipped} calls before this one left no row`)])
}

function drop(invocation: Invocation): void {
  running.delete(invocation.id)
  dropped += 1
  releaseBuffer(invocation.projectRef, lengthOf(invocation))
}

const lengthOfLine = ({ message }: ConsoleLine): number => message.length + LINE_OVERHEAD

const lengthOf = ({ console }: Pick<Invocation, 'console'>): number =>
  console.reduce((sum, line) => sum + lengthOfLine(line), 0)

/** Buffers the end of a call. `problem` becomes a line of its log, which the program could not print itself. */
export function recordEnd(
  host: RequestScope,
  id: string,
  { status, ms, problem }: { status: number; ms: number; problem?: string },
): void {
  unlisted.delete(id)
  const invocation = running.get(id)
  if (!invocation) return
  if (problem !== undefined) addLines(invocation, [newLine('error', problem)])
  running.delete(id)
  if (ended.size >= BUFFERED_MAX) drop(invocation)
  else ended.set(id, Object.assign(invocation, { status, ms }))
  scheduleWrite(host)
}

/** Copies the prefix: a slice would keep the whole text in memory. */
const truncate = (text: string, length: number): string =>
  text.length <= length ? text : Buffer.from(text.slice(0, length)).toString()

/** Postgres stores neither NUL nor lone surrogates. */
export const storableMessage = (text: string): string =>
  truncate(text, MESSAGE_LENGTH_MAX).replaceAll('\0', '').toWellFormed()

const newLine = (level: string, message: string): ConsoleLine => ({
  level,
  message: storableMessage(message),
  at: new Date().toISOString(),
})

/** Records what a program printed during a call. Lines for a call of another program are ignored. */
export function recordLines(host: RequestScope, owner: Owner, id: string, lines: readonly ConsoleLine[]): void {
  if (unlisted.get(id)) return
  const invocation = running.get(id) ?? ended.get(id)
  if (!invocation && late.length >= BUFFERED_MAX) {
    droppedLines += lines.length
  } else if (!invocation) {
    const added = addLines({ ...owner, projectRef: owner.ref, id, console: [] }, lines)
    if (added.console.length > 0) late.push(added)
  } else if (invocation.projectRef === owner.ref && invocation.programId === owner.programId) {
    addLines(invocation, lines)
  }
  scheduleWrite(host)
}

/** Records that the caller got this status instead of the program's response. */
export function recordLostResponse(
  host: RequestScope,
  { id, ...owner }: Owner & { id: string },
  { status, problem }: { status: number; problem: string },
): void {
  const lines = [newLine('error', problem)]
  const invocation = running.get(id) ?? ended.get(id)
  if (invocation) addLines(Object.assign(invocation, { status }), lines)
  else if (late.length < BUFFERED_MAX)
    late.push(addLines({ ...owner, projectRef: owner.ref, id, console: [], status }, lines))
  scheduleWrite(host)
}

/** Adds lines while there is room. An error replaces the last line of a full log, because it may say why the call failed. */
function addLines<T extends Pick<Invocation, 'console' | 'projectRef'>>(to: T, lines: readonly ConsoleLine[]): T {
  for (const line of lines) {
    const isFull = to.console.length >= LINES_MAX
    if (isFull && line.level !== 'error') continue
    if (!reserveBuffer(to.projectRef, lengthOfLine(line), Date.now())) {
      droppedLines += 1
      continue
    }
    const replaced = isFull ? to.console.pop() : undefined
    if (replaced) releaseBuffer(to.projectRef, lengthOfLine(replaced))
    to.console.push(line)
  }
  return to
}

async function writeAll(ctx: SystemCtx): Promise<void> {
  endAbandoned()
  const rows = [...ended.values()]
  const lines = late.splice(0)
  ended.clear()
  for (const portion of portionsOf(rows)) dropped += await write(ctx, portion, insert)
  for (const portion of portionsOf(lines)) droppedLines += await write(ctx, portion, append)
  if (dropped + droppedLines === 0) return
  ctx.log.error('invocations_dropped', { invocations: dropped, lines: droppedLines })
  dropped = 0
  droppedLines = 0
}

function portionsOf<T extends Pick<Invocation, 'console'>>(rows: readonly T[]): T[][] {
  const portions: T[][] = []
  let length = 0
  for (const row of rows) {
    const own = lengthOf(row)
    const last = portions.at(-1)
    if (last && last.length < PORTION && length + own <= PORTION_LENGTH_MAX) {
      last.push(row)
      length += own
    } else {
      portions.push([row])
      length = own
    }
  }
  return portions
}

/** Ends calls that were abandoned. The map is in order of start, so the first recent call ends the search. */
function endAbandoned(): void {
  const now = Date.now()
  for (const [id, invocation] of running) {
    if (now - invocation.at < RUNNING_MS_MAX) return
    running.delete(id)
    ended.set(id, { ...invocation, ms: now - invocation.at })
  }
}

type Send<T> = (db: Db, rows: readonly T[]) => Promise<unknown>

/** Returns the number of rows that were lost. */
async function write<T extends Pick<Invocation, 'console' | 'projectRef'>>(ctx: SystemCtx, rows: T[], send: Send<T>) {
  try {
    return await writeInHalves(ctx, 'invocations', rows, send)
  } finally {
    for (const row of rows) releaseBuffer(row.projectRef, lengthOf(row))
  }
}

const insert = (db: Db, rows: readonly Invocation[]) =>
  db.execute(sql`
    insert into invocations (id, kind, project_ref, program_id, deployment_id, method, path, status, ms, console, at)
    select id, kind, "projectRef", "programId", "deploymentId", method, path, status, ms, console, to_timestamp(at / 1000)
    from json_to_recordset(${JSON.stringify(rows)}::json) as r (id uuid, kind text, "projectRef" text, "programId" uuid,
      "deploymentId" uuid, method text, path text, status int, ms int, console jsonb, at double precision)
    on conflict do nothing`)

/**
 * Adds lines to written rows as `addLines` does to those that wait. Rows that have no room stay as they are: each change of one writes
 * all its lines anew.
 */
const append = (db: Db, lines: readonly LateLines[]) =>
  db.execute(sql`
    update invocations i set status = coalesce(l.status, i.status), console = (
      select coalesce(jsonb_agg(line order by number), '[]')
      from (
        select line, number,
          max(number) filter (where number = ${LINES_MAX} or number > ${LINES_MAX} and line ->> 'level' = 'error') over () as last
        from jsonb_array_elements(i.console || l.console) with ordinality as e (line, number)
      ) numbered
      where number < ${LINES_MAX} or number = last
    )
    from (
      select id, ref, "programId", max(status) as status,
        coalesce(jsonb_agg(line order by number) filter (where line is not null), '[]') as console
      from json_to_recordset(${JSON.stringify(lines)}::json)
          as r (id uuid, ref text, "programId" uuid, status int, console jsonb)
        left join jsonb_array_elements(r.console) with ordinality as e (line, number) on true
      group by id, ref, "programId"
    ) l
    where i.id = l.id and i.project_ref = l.ref and i.program_id = l."programId"
      and (l.status is not null or jsonb_array_length(i.console) < ${LINES_MAX} or l.console @> '[{"level": "error"}]')`)
