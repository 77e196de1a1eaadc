import { DurableObject } from 'cloudflare:workers'
import { createCtx } from '../../ctx.ts'
import type { Bindings } from '../../platform/bindings.ts'
import { count } from '../../platform/metrics/counters.ts'
import { networkPorts } from './attempt.ts'
import { createSender, type Sender } from './delivery-loop.ts'
import { createAdmission } from './delivery-permits.ts'
import { isGone } from './delivery-store.ts'

const ENDPOINT = 'endpoint'

const admission = createAdmission(Date.now)

/**
 * One object per webhook endpoint sends all its deliveries, so that a receiver that hangs delays nobody else's and the bound on
 * concurrent attempts holds across the installation. The alarm is the time of its next retry.
 */
export class WebhookSender extends DurableObject<Bindings> {
  readonly #system = createCtx({ bindings: this.env, waitUntil: (work) => this.ctx.waitUntil(work) })
  #sender: Sender | undefined

  /** Returns at once: attempts may take long, and who wakes has others to wake. */
  async wake(endpointId: string, { swept = false, asked = false } = {}): Promise<void> {
    if (!this.#sender) await this.ctx.storage.put(ENDPOINT, endpointId)
    void this.#senderOf(endpointId).wake({ swept, asked })
  }

  /** Its endpoint was deleted. An alarm does the rest: it is repeated until it is done. */
  async end(): Promise<void> {
    if (await this.ctx.storage.get(ENDPOINT)) await this.#wakeAt(Date.now())
  }

  override async alarm(): Promise<void> {
    const endpointId = await this.ctx.storage.get<string>(ENDPOINT)
    if (!endpointId) return
    void this.#senderOf(endpointId).wake({ plan: true })
    await this.#leaveNothing(endpointId)
  }

  /** What an object stores stays for good, and an endpoint that is gone never comes again. */
  async #leaveNothing(endpointId: string): Promise<void> {
    const { db, log } = this.#system
    // A database that is away tells nothing, and its senders ask again.
    if (!(await isGone(db, endpointId).catch(() => false))) return
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
    const standing = await this.ctx.storage.getAlarm()
    if (standing === null || at < standing) await this.ctx.storage.setAlarm(at)
  }
}
