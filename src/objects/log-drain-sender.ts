import { DurableObject } from 'cloudflare:workers'
import { createCtx } from '../ctx.ts'
import { runDrain } from '../drains/sender.ts'
import type { Bindings } from '../env.ts'
import { describeError } from '../http/log.ts'

/** One object a log drain sends its batches, so that a destination that hangs delays nobody else's. */
export class LogDrainSender extends DurableObject<Bindings> {
  #running = false

  /** Returns at once: who wakes has others to wake. */
  wake(drainId: string): void {
    if (this.#running) return
    this.#running = true
    this.ctx.waitUntil(this.#run(drainId))
  }

  async #run(drainId: string): Promise<void> {
    const ctx = createCtx({ bindings: this.env, waitUntil: (work) => this.ctx.waitUntil(work) })
    try {
      await runDrain(ctx, drainId)
    } catch (error) {
      ctx.log.error('log_drain_sender_failed', { drain: drainId, error: describeError(error) })
    } finally {
      this.#running = false
    }
  }
}
