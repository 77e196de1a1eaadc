import { index, integer, pgTable, text, uuid } from 'drizzle-orm/pg-core'
import { instant } from './identity.ts'

const columns = () => ({
  /** The `x-request-id` of the response. */
  id: uuid().primaryKey(),
  projectRef: text('project_ref').notNull(),
  method: text().notNull(),
  /** Path of the request without the query, which may hold a token. */
  path: text().notNull(),
  status: integer().notNull(),
  ms: integer().notNull(),
  /** Error code in the response. */
  error: text(),
  /** Number of requests before this one that were not recorded, because the project had too many. */
  skipped: integer().notNull(),
  at: instant('at').notNull(),
})

/** Requests to the projects' storage servers. Purged by age. */
export const storageRequests = pgTable('storage_requests', columns(), (t) => [
  index('storage_requests_of_project').on(t.projectRef, t.at),
  index('storage_requests_by_age').on(t.at),
])

/** Requests to the projects' Data APIs. Purged by age. */
export const dataApiRequests = pgTable('data_api_requests', columns(), (t) => [
  index('data_api_requests_of_project').on(t.projectRef, t.at),
  index('data_api_requests_by_age').on(t.at),
])
