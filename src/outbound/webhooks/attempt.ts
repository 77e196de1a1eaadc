import type { SystemCtx } from '../../ctx.ts'
import { webhookAssociatedData } from '../../model/secrets/associated-data.ts'
import { describeError } from '../../platform/http/log.ts'
import { checkDestination, type DestinationRules } from '../../platform/net/destination.ts'
import { createEgressFetch, destinationRules } from '../../platform/net/egress.ts'
import { unseal } from '../../platform/secrets/seal.ts'
import { type Timeout, timeout } from '../../platform/timeout.ts'
import type { Claimed } from './delivery-store.ts'
import { capture, isSuccess } from './response-capture.ts'
import { sign } from './signature.ts'

/** What an attempt needs of the outside; the fault tests bring their own. */
export interface Ports {
  post(url: string, init: RequestInit): Promise<Response>
  timeout(ms: number): Timeout
  rules: DestinationRules
}

/** The ports of a running installation. */
export const networkPorts = (ctx: SystemCtx): Ports => ({
  post: createEgressFetch(ctx),
  timeout,
  rules: destinationRules(ctx),
})

export type Outcome =
  | { kind: 'answered'; answer: Answer; succeeded: boolean }
  /** With the part of an answer that came, where one began. */
  | { kind: 'failed'; errorCode: FailureCode; errorMessage: string; answer?: Answer }
  /** The fault is ours: the receiver was not asked, and its attempt is not used up. */
  | { kind: 'postponed'; reason: string }

interface Answer {
  code: number
  headers: Record<string, string>
  body: string
}

type FailureCode = 'timeout' | 'connection_failed' | 'destination_refused' | 'name_not_resolved' | 'sender_died'

const PREPARED_MS_MAX = 8_000

/** One whose event is still there to be sent. */
type Sendable = Claimed & { payload: string }
export const hasEvent = (delivery: Claimed): delivery is Sendable => delivery.payload !== null

export async function attempt(ctx: SystemCtx, ports: Ports, delivery: Sendable, sentAt: number): Promise<Outcome> {
  const startedAt = ctx.now().getTime()
  const verdict = await checkDestination(delivery.url, ports.rules)
  if (verdict.kind === 'unavailable') return { kind: 'postponed', reason: verdict.reason }
  if (verdict.kind === 'refused') return failed('destination_refused', verdict.reason)
  if (verdict.kind === 'unresolved') return failed('name_not_resolved', verdict.reason)
  const request = await requestOf(ctx, delivery, sentAt)
  // Beyond it the lease could end before the answer comes, and somebody else would send it too.
  if (ctx.now().getTime() - startedAt > PREPARED_MS_MAX)
    return { kind: 'postponed', reason: 'it took too long to begin' }
  const timeoutMs = ctx.config.WEBHOOK_TIMEOUT_SECONDS * 1000
  const { signal, clear } = ports.timeout(timeoutMs)
  try {
    const response = await postOnceMore(ctx, ports, delivery.url, { ...request, signal })
    const { code, headers, body, readError } = await capture(response, signal)
    const answer = { code, headers, body }
    if (readError) return { ...broken(signal, timeoutMs), answer }
    return { kind: 'answered', answer, succeeded: isSuccess(code) }
  } catch (error) {
    if (isPlatformLimit(error)) return { kind: 'postponed', reason: 'the platform allows no more requests here' }
    return broken(signal, timeoutMs)
  } finally {
    clear()
  }
}

const failed = (errorCode: FailureCode, errorMessage: string): Outcome & { kind: 'failed' } => ({
  kind: 'failed',
  errorCode,
  errorMessage,
})

/** In our words: those of the runtime tell of its inside and differ from one version to the next. */
const broken = (signal: AbortSignal, timeoutMs: number) =>
  signal.aborted
    ? failed('timeout', `no complete answer within ${timeoutMs / 1000} s`)
    : failed('connection_failed', 'the connection failed before a complete answer came')

const isPlatformLimit = (error: unknown) => error instanceof Error && /too many subrequests/i.test(error.message)

const QUICK_MS = 1000

/** A kept connection that the receiver has closed fails at once: then a new one is worth one more try. */
async function postOnceMore(ctx: SystemCtx, ports: Ports, url: string, init: RequestInit): Promise<Response> {
  const startedAt = ctx.now().getTime()
  try {
    return await ports.post(url, init)
  } catch (error) {
    if (init.signal?.aborted || isPlatformLimit(error) || ctx.now().getTime() - startedAt >= QUICK_MS) throw error
    return ports.post(url, init)
  }
}

const reported = new Set<string>()

/** What was sealed; undefined where ENCRYPTION_KEY does not open it, which is logged once: each delivery would tell it again. */
export async function opened(
  { config, log }: Pick<SystemCtx, 'config' | 'log'>,
  endpointId: string,
  column: 'secret' | 'headers',
  sealed: string,
): Promise<string | undefined> {
  try {
    return await unseal(config.ENCRYPTION_KEY, sealed, webhookAssociatedData(endpointId, column))
  } catch (error) {
    const place = webhookAssociatedData(endpointId, column)
    const fields = { endpoint: endpointId, column, error: describeError(error) }
    if (!reported.has(place)) log.error('webhook_value_not_opened', fields)
    reported.add(place)
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
    ...valid.map(({ sealed }) => opened(ctx, endpointId, 'secret', sealed)),
  ])
  const secrets = [secret, ...old.filter((known) => known !== undefined)]
  const timestampSeconds = Math.floor(sentAt / 1000)
  const body = bodyOf(delivery)
  const headers = new Headers(JSON.parse(custom) as Record<string, string>)
  // Ours come last, so that no custom header can take their place.
  headers.set('content-type', 'application/json')
  headers.set('user-agent', 'Pilothouse-Webhooks/1.0')
  if (!headers.has('accept')) headers.set('accept', '*/*')
  headers.set('webhook-id', id)
  headers.set('webhook-timestamp', String(timestampSeconds))
  headers.set('webhook-signature', await sign({ id, timestampSeconds, body }, secrets))
  return { method: 'POST', headers, body, redirect: 'manual' }
}

/** The payload goes in as it was stored: every attempt sends the same bytes. */
const bodyOf = ({ messageId, type, publishedAt, payload }: Sendable): string =>
  `{"id":"${messageId}","type":"${type}","timestamp":"${new Date(publishedAt).toISOString()}","payload":${payload}}`
