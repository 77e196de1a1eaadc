import { sql } from 'drizzle-orm'

/**
 * The database's time, in milliseconds as timestamps are stored: rounded up, a row could lie in the future.
 * As a subquery it is asked once a statement; bare, it would be asked for every row and keep indexes on times from being used.
 */
export const DATABASE_CLOCK = sql`(select date_trunc('milliseconds', clock_timestamp()))`
