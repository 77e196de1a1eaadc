import { type SQL, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { claimHourlyRun } from '../../../model/hourly.ts'
import { rowsOf } from '../../../platform/db/client.ts'

const PORTION = 5_000
const PORTIONS_MAX = 100

/** Once an hour, deletes expired authorizations, access tokens of applications and used assertions. */
export async function purgeOAuth(ctx: SystemCtx): Promise<void> {
  if (!(await claimHourlyRun(ctx, 'oauth'))) return
  const now = ctx.now().toISOString()
  const grants = await purge(ctx, sql`oauth_grants`, sql`expires_at <= ${now}`)
  const tokens = await purge(ctx, sql`access_tokens`, sql`oauth_grant_id is not null and expires_at <= ${now}`)
  const assertions = await purge(ctx, sql`used_assertions`, sql`expires_at <= ${now}`)
  if (grants + tokens + assertions > 0) ctx.log.info('oauth_purged', { grants, tokens, assertions })
}

/** Deletes rows in portions. The condition is checked twice, as a row may be extended between the read and the lock. */
async function purge({ db }: SystemCtx, table: SQL, isOver: SQL): Promise<number> {
  let total = 0
  for (let portion = 0; portion < PORTIONS_MAX; portion++) {
    const [deleted] = await rowsOf<{ count: number }>(
      db,
      sql`with gone as (delete from ${table} where ${isOver} and id in (
        select id from ${table} where ${isOver} order by expires_at limit ${PORTION}) returning 1)
        select count(*)::int as count from gone`,
    )
    const count = deleted?.count ?? 0
    total += count
    if (count < PORTION) break
  }
  return total
}
