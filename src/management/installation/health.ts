import { HeadBucketCommand } from '@aws-sdk/client-s3'
import { eq, sql } from 'drizzle-orm'
import type { Hono } from 'hono'
import type { SystemCtx } from '../../ctx.ts'
import { heartbeats } from '../../model/tables/index.ts'
import { openBucket } from '../../platform/blobs/bucket.ts'
import type { AppEnv } from '../kernel/app-env.ts'
import { CHECK_MS_MAX, cacheCheck, runCheck } from './health-checks.ts'

const CACHE_MS = 2_000
/** The cron sends a heartbeat through the queue each minute; two may be late. */
export const HEARTBEAT_SECONDS_MAX = 180

export interface Health {
  status: 'ok' | 'unavailable'
  checks: {
    database: { ok: boolean; ms: number }
    bucket: { ok: boolean; ms: number }
    queue: { ok: boolean; age_seconds: number | null }
  }
}

export type HealthReporter = (ctx: SystemCtx) => Promise<Health>

export const createHealthReporter = (): HealthReporter => cacheCheck(checkHealth, CACHE_MS)

const UNCACHED = { 'cache-control': 'no-store' }

/** Mounts the health endpoints for load balancers and supervisors. They need no token, have no quota and look up no caller. */
export function mountHealth(app: Hono<AppEnv>, report: HealthReporter): void {
  // Liveness ignores the dependencies, because the restart of a process that responds does not repair them.
  app.get('/health/live', (c) => c.json({ status: 'ok' }, 200, UNCACHED))
  for (const path of ['/health', '/health/ready']) {
    app.get(path, async (c) => {
      const health = await report(c.var.ctx)
      return c.json(health, health.status === 'ok' ? 200 : 503, UNCACHED)
    })
  }
}

async function checkHealth(ctx: SystemCtx): Promise<Health> {
  const [database, bucket, queue] = await Promise.all([
    measureCheck(ctx, 'database', () => ctx.db.execute(sql`select 1`)),
    measureCheck(ctx, 'bucket', () => headBucket(ctx)),
    checkQueue(ctx),
  ])
  const ok = database.ok && bucket.ok && queue.ok
  return { status: ok ? 'ok' : 'unavailable', checks: { database, bucket, queue } }
}

const headBucket = ({ config, bindings }: SystemCtx) =>
  openBucket(config, bindings.SERVICES_EGRESS).client.send(new HeadBucketCommand({ Bucket: config.S3_BUCKET }), {
    abortSignal: AbortSignal.timeout(CHECK_MS_MAX),
  })

async function measureCheck(ctx: SystemCtx, name: string, work: () => Promise<unknown>) {
  const startedAt = performance.now()
  const { ok } = await runCheck(ctx, name, work)
  return { ok, ms: Math.round(performance.now() - startedAt) }
}

/** A recent heartbeat proves that cron, queue and consumer work. */
async function checkQueue(ctx: SystemCtx) {
  const find = () => ctx.db.select().from(heartbeats).where(eq(heartbeats.name, 'queue'))
  const { value: [heartbeat] = [] } = await runCheck(ctx, 'queue', find)
  if (!heartbeat) return { ok: false, age_seconds: null }
  const ageSeconds = Math.max(0, Math.round((ctx.now().getTime() - heartbeat.at.getTime()) / 1000))
  return { ok: ageSeconds < HEARTBEAT_SECONDS_MAX, age_seconds: ageSeconds }
}
