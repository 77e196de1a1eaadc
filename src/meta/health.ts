import { HeadBucketCommand } from '@aws-sdk/client-s3'
import { eq, sql } from 'drizzle-orm'
import type { Hono } from 'hono'
import { openBlobs } from '../blobs/client.ts'
import { heartbeats } from '../db/schema/index.ts'
import type { AppEnv, SystemCtx } from '../env.ts'
import { describeError } from '../http/log.ts'

const CHECK_MS_MAX = 3_000
/** So long a report is given out again, so that frequent polling costs no more than one check in this time. */
const KEPT_MS = 2_000
/** The cron sends a heartbeat through the queue each minute: two may be late. */
const HEARTBEAT_SECONDS_MAX = 180

interface Report {
  status: 'ok' | 'unavailable'
  checks: {
    database: { ok: boolean; ms: number }
    bucket: { ok: boolean; ms: number }
    queue: { ok: boolean; age_seconds: number | null }
  }
}

export type HealthReporter = (ctx: SystemCtx) => Promise<Report>

export const createHealthReporter = (): HealthReporter => keeping(checkHealth)

/** Ready or not, for load balancers: no token, no quota, and no query for the caller's token. */
export function mountHealth(app: Hono<AppEnv>, report: HealthReporter): void {
  app.get('/health', async (c) => {
    const health = await report(c.var.ctx)
    return c.json(health, health.status === 'ok' ? 200 : 503, { 'cache-control': 'no-store' })
  })
}

/** While one request checks, others get the last report: a promise cannot be awaited across requests in workerd. */
function keeping(check: HealthReporter): HealthReporter {
  let kept: { report: Report; from: number; until: number } | undefined
  return async (ctx) => {
    const now = ctx.now().getTime()
    if (kept && now >= kept.from && now < kept.until) return kept.report
    if (kept && now >= kept.from) kept.until = now + CHECK_MS_MAX
    const report = await check(ctx)
    kept = { report, from: now, until: ctx.now().getTime() + KEPT_MS }
    return report
  }
}

async function checkHealth(ctx: SystemCtx): Promise<Report> {
  const [database, bucket, queue] = await Promise.all([
    timed(ctx, 'database', () => ctx.db.execute(sql`select 1`)),
    timed(ctx, 'bucket', () => headBucket(ctx)),
    checkQueue(ctx),
  ])
  const ok = database.ok && bucket.ok && queue.ok
  return { status: ok ? 'ok' : 'unavailable', checks: { database, bucket, queue } }
}

const headBucket = ({ config, bindings }: SystemCtx) =>
  openBlobs(config, bindings.SERVICES_EGRESS).send(new HeadBucketCommand({ Bucket: config.S3_BUCKET }), {
    abortSignal: AbortSignal.timeout(CHECK_MS_MAX),
  })

async function timed(ctx: SystemCtx, name: string, work: () => Promise<unknown>) {
  const startedAt = performance.now()
  const { ok } = await attempt(ctx, name, work)
  return { ok, ms: Math.round(performance.now() - startedAt) }
}

/** A heartbeat that arrived proves the way from cron through queue to consumer. */
async function checkQueue(ctx: SystemCtx) {
  const find = () => ctx.db.select().from(heartbeats).where(eq(heartbeats.name, 'queue'))
  const { value: [heartbeat] = [] } = await attempt(ctx, 'queue', find)
  if (!heartbeat) return { ok: false, age_seconds: null }
  const ageSeconds = Math.max(0, Math.round((ctx.now().getTime() - heartbeat.at.getTime()) / 1000))
  return { ok: ageSeconds < HEARTBEAT_SECONDS_MAX, age_seconds: ageSeconds }
}

/** Never longer than CHECK_MS_MAX; what went wrong goes to the log alone. */
async function attempt<T>(
  { log }: SystemCtx,
  check: string,
  work: () => Promise<T>,
): Promise<{ ok: boolean; value?: T }> {
  let timer: ReturnType<typeof setTimeout> | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${CHECK_MS_MAX} ms`)), CHECK_MS_MAX)
  })
  try {
    return { ok: true, value: await Promise.race([work(), late]) }
  } catch (error) {
    log.error('health_check_failed', { check, error: describeError(error) })
    return { ok: false }
  } finally {
    clearTimeout(timer)
  }
}
