import type { EndpointState, Post } from '../receivers.ts'
import { type Evidence, statusOf } from './evidence.ts'

/** A claim's answer may take as long as a statement may, and is then good for one more second. */
const LATE_MS = 7_000
const RECORDED_MS = 5_000
const UNANSWERED_MAX = 32
const OPEN_MS = 25_000

/** Both states if two meet in one millisecond: the clock does not show which of two statements was first. */
const statesDuring = (states: readonly EndpointState[] = [], from: number, until: number) =>
  states.filter(({ at }, i) => at <= until && (states[i + 1]?.at ?? until) >= from)

/** O7: an endpoint gets no request that was claimed after it was disabled or deleted. */
export function nothingAfterTheEnd({ broken, endpoints, ledger }: Evidence): void {
  for (const { endpoint, label, claimedAt, startedAt, deliveryId } of ledger) {
    if (!deliveryId) broken('O7', `${endpoint} got ${label}, which its sender had not claimed`)
    const states = statesDuring(endpoints.get(endpoint)?.states, claimedAt, claimedAt)
    if (!states.some(({ enabled }) => enabled))
      broken('O7', `${endpoint} got ${label}, claimed when it was disabled or deleted`)
    if (startedAt - claimedAt > LATE_MS) {
      broken('O7', `${endpoint} got ${label} ${startedAt - claimedAt} ms after its claim`)
    }
  }
}

/** O7: without a fault, an attempt from before an endpoint was disabled is not repeated after it was enabled again. */
export function disabledAttemptsAreNotRepeated({ broken, endpoints, ledger, users }: Evidence): void {
  for (const { label, states } of endpoints.values()) {
    for (const [i, { enabled }] of states.entries()) {
      const until = states[i + 1]?.at ?? 0
      if (enabled) continue
      const posts = ledger.filter(({ endpoint, messageId }) => endpoint === label && !users.retried.has(messageId))
      const tried = new Set(posts.filter((post) => recordedAt(post) < until).map(({ messageId }) => messageId))
      const revived = posts.find(({ claimedAt, messageId }) => claimedAt >= until && tried.has(messageId))
      if (until > 0 && revived)
        broken('O7', `${revived.label} came to ${label} although it had been disabled meanwhile`)
    }
  }
}

/** The latest time at which its result was recorded, if there was no fault. */
const recordedAt = ({ at, behaviour }: Post) =>
  behaviour.kind === 'status' ? at + (behaviour.afterMs ?? 0) + RECORDED_MS : Number.POSITIVE_INFINITY

/** O5: an endpoint that answered 410 is disabled. */
export function goneEndpointsAreDisabled({ broken, endpoints, ledger }: Evidence): void {
  for (const post of ledger) {
    if (statusOf(post) !== 410 || post.instance.faultedAt.length > 0) continue
    const later = endpoints.get(post.endpoint)?.states.some(({ at, enabled }) => at >= post.claimedAt && !enabled)
    if (!later) broken('O5', `${post.endpoint} answered 410 and is not disabled`)
  }
}

/** O9: each request is signed with a secret that was valid at its time, and has the right timestamp. */
export function signaturesAreValid({ broken, endpoints, ledger }: Evidence): void {
  for (const { endpoint, label, at, claimedAt, signedBy, timestampSeconds } of ledger) {
    const states = statesDuring(endpoints.get(endpoint)?.states, claimedAt, at)
    const valid = new Set(states.map(({ secret }) => secret))
    if (!signedBy.some((secret) => valid.has(secret)))
      broken('O9', `${label} to ${endpoint} is signed with the secrets ${signedBy}`)
    if (Math.abs(timestampSeconds * 1000 - at) > 300_000) broken('O9', `${label} to ${endpoint} has a wrong timestamp`)
  }
}

/**
 * O11: a receiver that does not answer gets few requests. Ten failures open the circuit breaker; each may be two requests, and
 * some are in progress.
 */
export function deadReceiversAreSpared({ broken, ledger }: Evidence): void {
  for (const posts of Map.groupBy(ledger, ({ instance }) => instance).values()) {
    let unanswered: Post[] = []
    for (const post of posts) {
      unanswered = post.behaviour.kind === 'status' ? [] : [...unanswered, post].slice(-UNANSWERED_MAX)
      const tookMs = post.at - (unanswered[0]?.at ?? 0)
      if (unanswered.length === UNANSWERED_MAX && tookMs < OPEN_MS) {
        broken('O11', `${post.endpoint} got ${UNANSWERED_MAX} requests in ${tookMs} ms and answered none`)
        return
      }
    }
  }
}
