import type { SystemCtx } from '../../ctx.ts'
import { webhookAssociatedData } from '../../model/secrets/associated-data.ts'
import { describeError } from '../../platform/http/log.ts'
import { checkDestination, type DestinationRules } from '../../platform/net/destination.ts'
import { createEgressFetch, destinationRules } from '../../platform/net/egress.ts'
import { unseal } from '../../platform/secrets/seal.ts'
import { type Timeout, timeout } from '../../platform/timeout.ts'
import type { ClaimedDelivery } from './delivery-store.ts'
import { capture, isSuccess } from './response-capture.ts'
import { sign } from './signature.ts'

/** External dependencies of an attempt; fault tests replace them. */
export interface Ports {
  post(url: string, init: RequestInit): Promise<Response>
  timeout(ms: number): Timeout
  rules: DestinationRules
}

/** The ports of a real installation. */
export const networkPorts = (ctx: SystemCtx): Ports => ({
  post: createEgressFetch(ctx),
  timeout,
  rules: destinationRules(ctx),
})

export type Outcome =
  | { kind: 'answered'; answer: Answer; succeeded: boolean }
  /** `answer` has the received part of an incomplete response. */
  | { kind: 'failed'; errorCode: FailureCode; errorMessage: string; answer?: Answer }
  /** A local problem: no request was sent, and the attempt does not count. */
  | { kind: 'postponed'; reason: string }

interface Answer {
  code: number
  headers: Record<string, string>
  body: string
}

type FailureCode = 'timeout' | 'connection_failed' | 'destination_refused' | 'name_not_resolved' | 'sender_died'

const PREPARATION_MS_MAX = 8_000

/** A delivery whose event still exists. */
type Sendable = ClaimedDelivery & { payload: string }
export const hasEvent = (delivery: ClaimedDelivery): delivery is Sendable => delivery.payload !== null

/** Makes one attempt to deliver. Rejects if the headers or the signing secret cannot be decrypted. */
export async function attempt(ctx: SystemCtx, ports: Ports, delivery: Sendable, sentAt: number): Promise<Outcome> {
  const startedAt = ctx.now().getTime()
  const verdict = await checkDestination(delivery.url, ports.rules)
  if (verdict.kind === 'unavailable') return { kind: 'postponed', reason: verdict.reason }
  if (verdict.kind === 'refused') return failed('destination_refused', verdict.reason)
  if (verdict.kind === 'unresolved') return failed('name_not_resolved', verdict.reason)
  const request = await requestOf(ctx, delivery, sentAt)
  // After this time the lease could expire before the response, and another sender would send the delivery too.
  if (ctx.now().getTime() - startedAt > PREPARATION_MS_MAX)
    return { kind: 'postponed', reason: 'the preparation took too long' }
  const timeoutMs = ctx.config.WEBHOOK_TIMEOUT_SECONDS * 1000
  const { signal, clear } = ports.timeout(timeoutMs)
  try {
    const response = await postWithReconnect(ctx, ports, delivery.url, { ...request, signal })
    const { code, headers, body, readError } = await capture(response, signal)
    const answer = { code, headers, body }
    if (readError) return { ...transportFailure(signal, timeoutMs), answer }
    return { kind: 'answered', answer, succeeded: isSuccess(code) }
  } catch (error) {
    if (isPlatformLimit(error))
      return { kind: 'postponed', reason: 'the platform allows no more requests in this invocation' }
    return transportFailure(signal, timeoutMs)
  } finally {
    clear()
  }
}

const failed = (errorCode: FailureCode, errorMessage: string): Outcome & { kind: 'failed' } => ({
  kind: 'failed',
  errorCode,
  errorMessage,
})

/** Fixed messages, because those of the runtime expose internals and change between versions. */
const transportFailure = (signal: AbortSignal, timeoutMs: number) =>
  signal.aborted
    ? failed('timeout', `no complete response within ${timeoutMs / 1000} s`)
    : failed('connection_failed', 'the connection failed before a complete response arrived')

const isPlatformLimit = (error: unknown) => error instanceof Error && /too many subrequests/i.test(error.message)

const QUICK_MS = 1000

/** Retries once if the request fails immediately, which happens on a pooled connection that the receiver has closed. */
async function postWithReconnect(ctx: SystemCtx, ports: Ports, url: string, init: RequestInit): Promise<Response> {
  const startedAt = ctx.now().getTime()
  try {
    return await ports.post(url, init)
  } catch (error) {
    if (init.signal?.aborted || isPlatformLimit(error) || ctx.now().getTime() - startedAt >= QUICK_MS) throw error
    return ports.post(url, init)
  }
}

const loggedKeys = new Set<string>()

/** Decrypts a value; undefined if ENCRYPTION_KEY does not decrypt it. This is logged once, not for each delivery. */
export async function openSealed(
  { config, log }: Pick<SystemCtx, 'config' | 'log'>,
  endpointId: string,
  column: 'secret' | 'headers',
  sealed: string,
): Promise<string | undefined> {
  try {
    return await unseal(config.ENCRYPTION_KEY, sealed, webhookAssociatedData(endpointId, column))
  } catch (error) {
    const key = webhookAssociatedData(endpointId, column)
    const fields = { endpoint: endpointId, column, error: describeError(error) }
    if (!loggedKeys.has(key)) log.error('webhook_value_not_opened', fields)
    loggedKeys.add(key)
    return undefined
  }
}

async function requestOf(ctx: SystemCtx, delivery: Sendable, sentAt: number): Promise<RequestInit> {
  const { messageId: id, endpointId } = delivery
  const open = (sealed: string, column: 'secret' | 'headers') =>
    unseal(ctx.config.ENCRYPTION_KEY, sealed, webhookAssociatedData(endpointId, column))
  const valid = delivery.oldSecrets.filter(({ until }) => until > sentAt)
  const [custom, secret, ...old] = await Promise.all([
    delivery.sealedHeaders === null ? '{}' : open(delivery.sealedHeaders, 'headers'),
    open(delivery.sealedSecret, 'secret'),
    ...valid.map(({ sealed }) => openSealed(ctx, endpointId, 'secret', sealed)),
  ])
  const secrets = [secret, ...old.filter((plaintext) => plaintext !== undefined)]
  const timestampSeconds = Math.floor(sentAt / 1000)
  const body = bodyOf(delivery)
  const headers = new Headers(JSON.parse(custom) as Record<string, string>)
  // Set last, so that custom headers cannot override them.
  headers.set('content-type', 'application/json')
  headers.set('user-agent', 'Pilothouse-Webhooks/1.0')
  if (!headers.has('accept')) headers.set('accept', '*/*')
  headers.set('webhook-id', id)
  headers.set('webhook-timestamp', String(timestampSeconds))
  headers.set('webhook-signature', sign({ id, timestampSeconds, body }, secrets))
  return { method: 'POST', headers, body, redirect: 'manual' }
}

/** Inserts the payload as stored, so that every attempt sends the same bytes. */
const bodyOf = ({ messageId, type, publishedAt, payload }: Sendable): string =>
  `{"id":"${messageId}","type":"${type}","timestamp":"${new Date(publishedAt).toISOString()}","payload":${payload}}`
