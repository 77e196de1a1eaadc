import { DurableObject } from 'cloudflare:workers'
import { createCtx } from '../ctx.ts'
import { networkPorts } from '../delivery/ports.ts'
import { createSender, type Sender } from '../delivery/sender.ts'
import type { Bindings } from '../env.ts'

const ENDPOINT = 'endpoint'

/**
 * One object per webhook endpoint sends all its deliveries, so that a receiver that hangs delays nobody else's and the bound on
 * concurrent attempts holds across the installation. The alarm is the time of its next retry.
 */
export class WebhookSender extends DurableObject<Bindings> {
  #sender: Sender | undefined

  /** Returns at once: attempts may take long, and who wakes has others to wake. */
  async wake(endpointId: string, { swept = false } = {}): Promise<void> {
    if (!this.#sender) await this.ctx.storage.put(ENDPOINT, endpointId)
    void this.#senderOf(endpointId).wake({ swept })
  }

  override async alarm(): Promise<void> {
    const endpointId = await this.ctx.storage.get<string>(ENDPOINT)
    if (endpointId) void this.#senderOf(endpointId).wake({ plan: true })
  }

  #senderOf(endpointId: string): Sender {
    if (this.#sender) return this.#sender
    const ctx = createCtx({ bindings: this.env, waitUntil: (work) => this.ctx.waitUntil(work) })
    this.#sender = createSender(ctx, {
      endpointId,
      ports: networkPorts(ctx),
      wakeAt: (at) => this.#wakeAt(at),
    })
    return this.#sender
  }

  async #wakeAt(at: number): Promise<void> {
    const standing = await this.ctx.storage.getAlarm()
    if (standing === null || at < standing) await this.ctx.storage.setAlarm(at)
  }
}
