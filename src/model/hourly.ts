import { lte } from 'drizzle-orm'
import type { PlatformCtx } from '../platform/context.ts'
import { heartbeats } from './tables/index.ts'

const EVERY_MS = 60 * 60_000

/** Whether a duty of this name, which the cron comes to every minute, is to be done now: of several isolates one is told so. */
export async function isHourlyDue({ db, now }: PlatformCtx, name: string): Promise<boolean> {
  const at = now()
  const taken = await db
    .insert(heartbeats)
    .values({ name, at })
    .onConflictDoUpdate({
      target: heartbeats.name,
      set: { at },
      setWhere: lte(heartbeats.at, new Date(at.getTime() - EVERY_MS)),
    })
    .returning({ name: heartbeats.name })
  return taken.length > 0
}
