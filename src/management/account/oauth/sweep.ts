import { sql } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { claimHourlyRun } from '../../../model/hourly.ts'
import { accessTokens, oauthGrants, usedAssertions } from '../../../model/tables/index.ts'
import { purgeRows } from '../../../platform/db/purge.ts'

/** Once an hour, deletes expired authorizations, access tokens of applications and used assertions. */
export async function purgeOAuth(ctx: SystemCtx): Promise<void> {
  if (!(await claimHourlyRun(ctx, 'oauth'))) return
  const { db, log } = ctx
  const isOver = sql`expires_at <= ${ctx.now().toISOString()}`
  const order = sql`expires_at`
  const grants = await purgeRows(db, oauthGrants, isOver, order)
  const tokens = await purgeRows(db, accessTokens, sql`oauth_grant_id is not null and ${isOver}`, order)
  const assertions = await purgeRows(db, usedAssertions, isOver, order)
  if (grants + tokens + assertions > 0) log.info('oauth_purged', { grants, tokens, assertions })
}
