import { sql } from 'drizzle-orm'

/**
 * Time of the database, truncated to the milliseconds that timestamps store: rounded up, a row could be in the future.
 * The subquery is evaluated once per statement; a bare call would be evaluated for each row and prevent index scans on times.
 */
export const DATABASE_CLOCK = sql`(select date_trunc('milliseconds', clock_timestamp()))`
