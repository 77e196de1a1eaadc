import { lte } from 'drizzle-orm'
import type { PlatformCtx } from '../platform/context.ts'
import { heartbeats } from './tables/index.ts'

const INTERVAL_MS = 60 * 60_000

/** Claims the hourly run of a duty. Returns true once an hour, to one isolate only. */
export async function claimHourlyRun({ db, now }: PlatformCtx, name: string): Promise<boolean> {
  const at = now()
  const claimed = await db
    .insert(heartbeats)
    .values({ name, at })
    .onConflictDoUpdate({
      target: heartbeats.name,
      set: { at },
      setWhere: lte(heartbeats.at, new Date(at.getTime() - INTERVAL_MS)),
    })
    .returning({ name: heartbeats.name })
  return claimed.length > 0
}
