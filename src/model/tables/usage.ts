import { index, integer, pgTable, primaryKey, text } from 'drizzle-orm/pg-core'
import { instant } from './identity.ts'

const COUNTED_SERVICES = ['storage', 'rest', 'functions', 'workers'] as const

/** Number of requests to a service of a project in each minute. Purged by age. */
export const requestCounts = pgTable(
  'request_counts',
  {
    projectRef: text('project_ref').notNull(),
    /** Start of the minute. */
    minute: instant('minute').notNull(),
    service: text({ enum: COUNTED_SERVICES }).notNull(),
    requests: integer().notNull(),
  },
  (t) => [primaryKey({ columns: [t.projectRef, t.minute, t.service] }), index('request_counts_by_age').on(t.minute)],
)
