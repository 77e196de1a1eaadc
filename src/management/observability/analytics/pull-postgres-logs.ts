import { eq, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import type { DatabaseLogs, LogPage } from '../../../engine/logs.ts'
import { postgresLogCursors, postgresLogs } from '../../../model/tables/index.ts'
import { purgeLogs } from '../../../outbound/logs/purge.ts'
import { rowsOf } from '../../../platform/db/client.ts'
import { purgeInPortions } from '../../../platform/db/purge.ts'
import { describeError } from '../../../platform/http/log.ts'

/** Whoever logs more in a day is read on the next one, as far as the host still has it. */
const MESSAGES_PER_DAY_MAX = 200_000
const PAGE_LINES = 500
/** Of one project in one round. */
const PAGES_MAX = 4
/** Of one round; those that were read the longest time ago come first. */
const PROJECTS_MAX = 500
const AT_ONCE = 8

interface Place {
  ref: string
  /** Null where nothing has been read. */
  cursor: string | null
}

/** Stores what the servers have logged since the last round. */
export async function pullPostgresLogs(ctx: SystemCtx): Promise<void> {
  const { engine, log } = ctx
  if (!engine.logs) return
  const { ends, unreachable } = await engine.logs.ends()
  if (unreachable.length > 0) log.error('logs_unreachable', { hosts: unreachable })
  const due = await behind(ctx, ends)
  const next = async () => {
    for (let place = due.shift(); place; place = due.shift()) await pullTolerantly(ctx, place)
  }
  await Promise.all(Array.from({ length: AT_ONCE }, next))
}

const FRESHEN_MS_MAX = 2_000

/** Stores what one server has logged up to now, for a query; what takes too long is left to the next round. */
export async function freshenPostgresLogs(ctx: SystemCtx, ref: string): Promise<void> {
  const { db, engine } = ctx
  if (!engine.logs) return
  const pull = async () => {
    const [row] = await db.select().from(postgresLogCursors).where(eq(postgresLogCursors.projectRef, ref))
    if (row && row.day === today(ctx) && row.messages >= MESSAGES_PER_DAY_MAX) return
    await pullTolerantly(ctx, { ref, cursor: row?.cursor ?? null })
  }
  const tooLate = new Promise<void>((resolve) => setTimeout(resolve, FRESHEN_MS_MAX))
  const pulling = pull()
  ctx.waitUntil(pulling)
  await Promise.race([pulling, tooLate])
}

const today = ({ now }: SystemCtx): string => now().toISOString().slice(0, 10)

/** Projects whose log goes on after their cursor. */
async function behind(ctx: SystemCtx, ends: ReadonlyMap<string, string>): Promise<Place[]> {
  const all = JSON.stringify([...ends].map(([ref, end]) => ({ ref, end })))
  return rowsOf<Place>(
    ctx.db,
    sql`select p.ref, c.cursor from json_to_recordset(${all}::json) e (ref text, "end" text)
      join projects p on p.ref = e.ref and p.removed_at is null
      left join ${postgresLogCursors} c on c.project_ref = p.ref
      where c.cursor is distinct from e."end" and (c.day = ${today(ctx)}::date and c.messages >= ${MESSAGES_PER_DAY_MAX}) is not true
      order by c.read_at nulls first limit ${PROJECTS_MAX}`,
  )
}

/** A host that is down holds up no other project, and the next round comes to this one again. */
async function pullTolerantly(ctx: SystemCtx, place: Place): Promise<void> {
  try {
    if (ctx.engine.logs) await pull(ctx, ctx.engine.logs, place)
  } catch (error) {
    ctx.log.error('logs_not_read', { project: place.ref, error: describeError(error) })
  }
}

async function pull(ctx: SystemCtx, logs: DatabaseLogs, { ref, cursor }: Place): Promise<void> {
  let at = cursor
  for (let count = 0; count < PAGES_MAX; count++) {
    const page = await logs.read(ref, at ?? undefined, PAGE_LINES)
    if (page.cursor === at || !(await store(ctx, { ref, cursor: at }, page))) return
    at = page.cursor
  }
}

/**
 * Stores a page and its cursor in one statement, and only if the cursor is still the one that the page follows: of several who
 * read the same page, one stores it. False for the others, and where the project is gone.
 */
async function store(ctx: SystemCtx, { ref, cursor }: Place, page: LogPage): Promise<boolean> {
  const messages = [...skipped(ctx, page), ...page.lines].map(({ timestamp, message, fields }) => ({
    at: timestamp,
    message,
    attributes: Object.fromEntries(
      Object.entries({ ...fields, timestamp }).map(([name, text]) => [`parsed.${name}`, text]),
    ),
  }))
  const [row] = await rowsOf<{ moved: number }>(
    ctx.db,
    sql`with moved as (
        insert into ${postgresLogCursors} as c (project_ref, cursor, read_at, day, messages)
          select ref, ${page.cursor}, ${ctx.now().toISOString()}, ${today(ctx)}::date, ${messages.length}
          from projects where ref = ${ref} and removed_at is null
        on conflict (project_ref) do update set cursor = excluded.cursor, read_at = excluded.read_at, day = excluded.day,
          messages = excluded.messages + case when c.day = excluded.day then c.messages else 0 end
          where c.cursor is not distinct from ${cursor}
        returning 1
      ), stored as (
        insert into ${postgresLogs} (project_ref, at, message, attributes)
        select ${ref}, at + least(row_number() over (partition by at order by number) - 1, 999) * interval '1 microsecond',
          message, attributes
        from moved cross join rows from (json_to_recordset(${JSON.stringify(messages)}::json)
          as (at timestamptz, message text, attributes jsonb)) with ordinality as m (at, message, attributes, number)
        order by number
      )
      select count(*)::int as moved from moved`,
  )
  return row?.moved === 1
}

/** Tells of what was logged faster than it was read. */
function skipped({ now }: SystemCtx, { skippedBytes, lines }: LogPage): LogPage['lines'] {
  if (skippedBytes === 0) return []
  const timestamp = lines[0]?.timestamp ?? now().toISOString()
  const message = `${skippedBytes} bytes of the log were not kept: they were written faster than the log is read`
  return [{ timestamp, message, fields: { error_severity: 'WARNING' } }]
}

/** Deletes messages that are older than a week, and the places of projects that are gone. */
export async function purgePostgresLogs(ctx: SystemCtx): Promise<void> {
  await purgeLogs(ctx, 'postgres_logs')
  await purgeInPortions(
    ctx.db,
    (portion) => sql`delete from ${postgresLogCursors} where project_ref in (
      select c.project_ref from ${postgresLogCursors} c join projects p on p.ref = c.project_ref
      where p.removed_at is not null limit ${portion})`,
  )
}
