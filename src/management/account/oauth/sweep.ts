import { type SQL, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { claimHourlyRun } from '../../../model/hourly.ts'
import { purgeInPortions } from '../../../platform/db/purge.ts'

/** Once an hour, deletes expired authorizations, access tokens of applications and used assertions. */
export async function purgeOAuth(ctx: SystemCtx): Promise<void> {
  if (!(await claimHourlyRun(ctx, 'oauth'))) return
  const now = ctx.now().toISOString()
  const grants = await purge(ctx, sql`oauth_grants`, sql`expires_at <= ${now}`)
  const tokens = await purge(ctx, sql`access_tokens`, sql`oauth_grant_id is not null and expires_at <= ${now}`)
  const assertions = await purge(ctx, sql`used_assertions`, sql`expires_at <= ${now}`)
  if (grants + tokens + assertions > 0) ctx.log.info('oauth_purged', { grants, tokens, assertions })
}

/** Deletes rows in portions. The condition is checked twice, because a row may be extended between the read and the lock. */
function purge({ db }: SystemCtx, table: SQL, isOver: SQL): Promise<number> {
  return purgeInPortions(
    db,
    (portion) => sql`delete from ${table} where ${isOver} and id in (
      select id from ${table} where ${isOver} order by expires_at limit ${portion})`,
  )
}
