import { DurableObject } from 'cloudflare:workers'
import { createCtx } from '../../ctx.ts'
import type { Bindings } from '../../platform/bindings.ts'
import { describeError } from '../../platform/http/log.ts'
import { runDrain } from './sender.ts'

const DRAIN = 'drain'

/**
 * Sends the batches of one log drain, so that a slow destination does not delay other drains. The alarm is set to the next
 * retry, and the id of the drain is stored for it.
 */
export class LogDrainSender extends DurableObject<Bindings> {
  #running = false

  /** Starts a run and returns at once, so that the caller can wake other senders. */
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
