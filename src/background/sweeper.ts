import { DurableObject } from 'cloudflare:workers'
import { createCtx } from '../ctx.ts'
import type { Bindings } from '../platform/bindings.ts'
import { runDuties } from './cron.ts'
import { urgentDuties } from './duties.ts'

const INTERVAL_MS = 10_000

/** Runs urgent duties every 10 s, because the cron runs only once a minute. The cron sets the alarm, and sets it again if it is lost. */
export class WebhookSweeper extends DurableObject<Bindings> {
  async arm(): Promise<void> {
    if ((await this.ctx.storage.getAlarm()) === null) await this.ctx.storage.setAlarm(Date.now() + INTERVAL_MS)
  }

  override async alarm(): Promise<void> {
    const ctx = createCtx({ bindings: this.env, waitUntil: (work) => this.ctx.waitUntil(work) })
    try {
      await runDuties(ctx, urgentDuties, new Date())
    } finally {
      await this.ctx.storage.setAlarm(Date.now() + INTERVAL_MS)
    }
  }
}
