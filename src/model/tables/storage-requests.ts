import { index, integer, pgTable, text, uuid } from 'drizzle-orm/pg-core'
import { instant } from './identity.ts'

/** One request to a project's storage server. Purged by age. */
export const storageRequests = pgTable(
  'storage_requests',
  {
    /** The `x-request-id` of the reply. */
    id: uuid().primaryKey(),
    projectRef: text('project_ref').notNull(),
    method: text().notNull(),
    /** As the caller asked for it, without its query, which may hold a token. */
    path: text().notNull(),
    status: integer().notNull(),
    ms: integer().notNull(),
    /** The code of the error that the reply tells. */
    error: text(),
    /** How many requests before it left no row, as the project had too many. */
    skipped: integer().notNull(),
    at: instant('at').notNull(),
  },
  (t) => [index('storage_requests_of_project').on(t.projectRef, t.at), index('storage_requests_by_age').on(t.at)],
)
