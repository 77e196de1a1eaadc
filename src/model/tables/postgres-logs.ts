import { sql } from 'drizzle-orm'
import { date, index, integer, jsonb, pgTable, text, timestamp, uuid } from 'drizzle-orm/pg-core'
import { instant } from './identity.ts'

/** Log messages of the projects' Postgres servers. Purged by age. */
export const postgresLogs = pgTable(
  'postgres_logs',
  {
    id: uuid().primaryKey().default(sql`uuidv7()`),
    projectRef: text('project_ref').notNull(),
    /** Time in microseconds, so that messages of the same millisecond keep their order. */
    at: timestamp('at', { withTimezone: true, precision: 6, mode: 'date' }).notNull(),
    message: text().notNull(),
    /** Names start with `parsed.`, as clients expect. */
    attributes: jsonb().$type<Record<string, string>>().notNull(),
  },
  (t) => [index('postgres_logs_of_project').on(t.projectRef, t.at), index('postgres_logs_by_age').on(t.at)],
)

/** Position up to which each server's log has been read. */
export const postgresLogCursors = pgTable('postgres_log_cursors', {
  projectRef: text('project_ref').primaryKey(),
  cursor: text().notNull(),
  readAt: instant('read_at').notNull(),
  /** Day on which messages were last stored. `messages` counts those that were stored on that day. */
  day: date({ mode: 'string' }).notNull(),
  messages: integer().notNull(),
})
