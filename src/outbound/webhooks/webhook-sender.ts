import { DurableObject } from 'cloudflare:workers'
import { createCtx } from '../../ctx.ts'
import type { Bindings } from '../../platform/bindings.ts'
import { count } from '../../platform/metrics/counters.ts'
import { networkPorts } from './attempt.ts'
import { createSender, type Sender } from './delivery-loop.ts'
import { createAdmission } from './delivery-permits.ts'
import { isDeleted } from './delivery-store.ts'

const ENDPOINT = 'endpoint'

const admission = createAdmission(Date.now)

/**
 * Sends all deliveries of one webhook endpoint, so that a slow receiver does not delay others and the limit on concurrent attempts
 * applies to the whole installation. The alarm is set to the next retry.
 */
export class WebhookSender extends DurableObject<Bindings> {
  readonly #system = createCtx({ bindings: this.env, waitUntil: (work) => this.ctx.waitUntil(work) })
  #sender: Sender | undefined

  /** Starts the sender and returns at once: attempts may take long, and the caller may have other senders to wake. */
  async wake(endpointId: string, { swept = false, asked = false } = {}): Promise<void> {
    if (!this.#sender) await this.ctx.storage.put(ENDPOINT, endpointId)
    void this.#senderOf(endpointId).wake({ swept, asked })
  }

  /** Called when the endpoint was deleted. An alarm removes the storage, because alarms are retried. */
  async end(): Promise<void> {
    if (await this.ctx.storage.get(ENDPOINT)) await this.#wakeAt(Date.now())
  }

  override async alarm(): Promise<void> {
    const endpointId = await this.ctx.storage.get<string>(ENDPOINT)
    if (!endpointId) return
    void this.#senderOf(endpointId).wake({ plan: true })
    await this.#removeIfDeleted(endpointId)
  }

  /** Removes the stored state of a deleted endpoint, which would otherwise stay forever. */
  async #removeIfDeleted(endpointId: string): Promise<void> {
    const { db, log } = this.#system
    // If the database fails, the state stays; the sender checks again later.
    if (!(await isDeleted(db, endpointId).catch(() => false))) return
    await this.ctx.storage.deleteAll()
    log.info('webhook_sender_removed', { endpoint: endpointId })
  }

  #senderOf(endpointId: string): Sender {
    if (this.#sender) return this.#sender
    this.#sender = createSender(this.#system, {
      endpointId,
      ports: networkPorts(this.#system),
      admission,
      wakeAt: (at) => this.#wakeAt(at),
      onResult: (status) => count(this.#system, 'webhook_attempts', [status]),
    })
    return this.#sender
  }

  async #wakeAt(at: number): Promise<void> {
    const scheduled = await this.ctx.storage.getAlarm()
    if (scheduled === null || at < scheduled) await this.ctx.storage.setAlarm(at)
  }
}
