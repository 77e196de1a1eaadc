import { eq, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import type { DatabaseLogs, LogPage } from '../../../engine/logs.ts'
import { postgresLogCursors, postgresLogs } from '../../../model/tables/index.ts'
import { rowsOf } from '../../../platform/db/client.ts'
import { forEachConcurrently } from '../../../platform/for-each-concurrently.ts'
import { describeError } from '../../../platform/http/log.ts'
import { awaitWithin } from '../../../platform/timeout.ts'

/** Maximum number of messages stored per project and day. The rest is read on the next day if the host still has it. */
const MESSAGES_PER_DAY_MAX = 200_000
const PAGE_LINES = 500
/** The maximum number of pages read per project and round. */
const PAGES_MAX = 4
/** The maximum number of projects per round, least recently read first. */
const PROJECTS_MAX = 500
const CONCURRENCY = 8

interface ProjectCursor {
  ref: string
  /** Null if nothing has been read. */
  cursor: string | null
}

/** Stores the messages that the servers have logged since the last round. */
export async function pullPostgresLogs(ctx: SystemCtx): Promise<void> {
  const { engine, log } = ctx
  if (!engine.logs) return
  const { ends, unreachable } = await engine.logs.ends()
  if (unreachable.length > 0) log.error('logs_unreachable', { hosts: unreachable })
  const due = await selectProjectsToRead(ctx, ends)
  await forEachConcurrently(due, CONCURRENCY, (project) => pullOrLog(ctx, project))
}

const FRESHEN_MS_MAX = 2_000

/** Stores the latest messages of one server before a query. If that takes too long, the next round stores them. */
export async function freshenPostgresLogs(ctx: SystemCtx, ref: string): Promise<void> {
  const { db, engine } = ctx
  if (!engine.logs) return
  const pull = async () => {
    const [row] = await db.select().from(postgresLogCursors).where(eq(postgresLogCursors.projectRef, ref))
    if (row && row.day === today(ctx) && row.messages >= MESSAGES_PER_DAY_MAX) return
    await pullOrLog(ctx, { ref, cursor: row?.cursor ?? null })
  }
  const pulling = pull()
  ctx.waitUntil(pulling)
  await awaitWithin(FRESHEN_MS_MAX, pulling)
}

const today = ({ now }: SystemCtx): string => now().toISOString().slice(0, 10)

/** Selects projects whose log continues after their cursor. */
async function selectProjectsToRead(ctx: SystemCtx, ends: ReadonlyMap<string, string>): Promise<ProjectCursor[]> {
  const all = JSON.stringify([...ends].map(([ref, end]) => ({ ref, end })))
  return rowsOf<ProjectCursor>(
    ctx.db,
    sql`select p.ref, c.cursor from json_to_recordset(${all}::json) e (ref text, "end" text)
      join projects p on p.ref = e.ref and p.removed_at is null
      left join ${postgresLogCursors} c on c.project_ref = p.ref
      where c.cursor is distinct from e."end" and (c.day = ${today(ctx)}::date and c.messages >= ${MESSAGES_PER_DAY_MAX}) is not true
      order by c.read_at nulls first limit ${PROJECTS_MAX}`,
  )
}

/** Logs a failure instead of throwing, so that a host that is down does not block other projects. */
async function pullOrLog(ctx: SystemCtx, project: ProjectCursor): Promise<void> {
  try {
    if (ctx.engine.logs) await pull(ctx, ctx.engine.logs, project)
  } catch (error) {
    ctx.log.error('logs_not_read', { project: project.ref, error: describeError(error) })
  }
}

async function pull(ctx: SystemCtx, logs: DatabaseLogs, { ref, cursor }: ProjectCursor): Promise<void> {
  let at = cursor
  for (let count = 0; count < PAGES_MAX; count++) {
    const page = await logs.read(ref, at ?? undefined, PAGE_LINES)
    if (page.cursor === at || !(await store(ctx, { ref, cursor: at }, page))) return
    at = page.cursor
  }
}

/**
 * Stores a page and its cursor in one statement if the page still follows the stored cursor, so that only one of several
 * concurrent readers stores it. Returns false for the others, or if the project was removed.
 */
async function store(ctx: SystemCtx, { ref, cursor }: ProjectCursor, page: LogPage): Promise<boolean> {
  const messages = [...skippedNotice(ctx, page), ...page.lines].map(({ timestamp, message, fields }) => ({
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

/** Returns a message about lines that were logged faster than they were read. */
function skippedNotice({ now }: SystemCtx, { skippedBytes, lines }: LogPage): LogPage['lines'] {
  if (skippedBytes === 0) return []
  const timestamp = lines[0]?.timestamp ?? now().toISOString()
  const message = `${skippedBytes} bytes of the log were not stored: they were written faster than the log is read`
  return [{ timestamp, message, fields: { error_severity: 'WARNING' } }]
}

/** Deletes the cursors of removed projects. */
export async function purgeLogCursors({ db }: SystemCtx): Promise<void> {
  await db.execute(sql`delete from ${postgresLogCursors} c using projects p
    where p.ref = c.project_ref and p.removed_at is not null`)
}
