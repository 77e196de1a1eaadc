import { DurableObject } from 'cloudflare:workers'
import { createCtx } from '../../ctx.ts'
import type { Bindings } from '../../platform/bindings.ts'
import { describeError } from '../../platform/http/log.ts'
import { runDrain } from './sender.ts'

const DRAIN = 'drain'

/**
 * One object a log drain sends its batches, so that a destination that hangs delays nobody else's. The alarm is the time of the next
 * retry, for which its drain is stored.
 */
export class LogDrainSender extends DurableObject<Bindings> {
  #running = false

  /** Returns at once: who wakes has others to wake. */
  wake(drainId: string): void {
    if (this.#running) return
    this.#running = true
    this.ctx.waitUntil(this.#run(drainId))
  }

  override async alarm(): Promise<void> {
    const drainId = await this.ctx.storage.get<string>(DRAIN)
    await this.ctx.storage.deleteAll()
    if (drainId) this.wake(drainId)
  }

  async #run(drainId: string): Promise<void> {
    const ctx = createCtx({ bindings: this.env, waitUntil: (work) => this.ctx.waitUntil(work) })
    try {
      const retryMs = await runDrain(ctx, drainId)
      if (retryMs === undefined) return
      await this.ctx.storage.put(DRAIN, drainId)
      await this.ctx.storage.setAlarm(Date.now() + retryMs)
    } catch (error) {
      ctx.log.error('log_drain_sender_failed', { drain: drainId, error: describeError(error) })
    } finally {
      this.#running = false
    }
  }
}
