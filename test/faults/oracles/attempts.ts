import type { Post } from '../receivers.ts'
import { type Evidence, type Row, statusOf, succeeds, undisturbed } from './evidence.ts'

const DELAYS_S = [10, 30, 90, 270]
const ATTEMPTS_MAX = 5
/** Less than the grace period of the sweeper. */
const LATE_MS_MAX = 5_000

/** O3: a message has at most five attempts, each number once, and none is earlier than the schedule says. */
export function scheduleIsKept({ broken, byMessage, postsOf, users }: Evidence): void {
  for (const [messageId, attempts] of byMessage) {
    for (const { attempt, trigger } of attempts) {
      if (trigger === 'event' && attempt > ATTEMPTS_MAX) broken('O3', `${messageId} has attempt ${attempt}`)
    }
    if (users.retried.has(messageId)) continue
    const numbers = attempts.map(({ attempt }) => attempt)
    if (new Set(numbers).size < numbers.length) broken('O3', `${messageId} has attempts ${numbers}`)
    for (const row of attempts) {
      const before = attempts.find(({ attempt }) => attempt === row.attempt - 1)
      const posts = postsOf.get(before?.id ?? '') ?? []
      const ended = posts.findLast(undisturbed) ?? posts[0]
      const again = postsOf.get(row.id)?.[0]
      const delayMs = (DELAYS_S[row.attempt - 2] ?? 0) * 1000
      if (ended && again && again.at - ended.at < delayMs) {
        broken('O3', `${row.label} attempt ${row.attempt} came after ${again.at - ended.at} ms, not ${delayMs}`)
      }
    }
  }
}

/** O3: without a fault, the alarm makes the next attempt, and not the sweeper, which has a grace period. */
export function nextAttemptsAreInTime(evidence: Evidence): void {
  const { rows, broken, byMessage, postsOf, users } = evidence
  const slow = slowReceivers(evidence)
  for (const row of rows) {
    const before = (byMessage.get(row.messageId) ?? []).find(({ attempt }) => attempt === row.attempt - 1)
    const ended = postsOf.get(before?.id ?? '')?.at(-1)
    const [again] = postsOf.get(row.id) ?? []
    if (!ended || !again || row.claims > 1 || users.retried.has(row.messageId)) continue
    if (slow.has(again.endpoint) || [ended, again].some(({ instance }) => instance.faultedAt.length > 0)) continue
    const lateMs = again.at - ended.at - (DELAYS_S[row.attempt - 2] ?? 0) * 1000 * 1.2
    if (lateMs > LATE_MS_MAX) broken('O3', `${row.label} attempt ${row.attempt} came ${lateMs} ms late`)
  }
}

/** O3: without a fault, the publisher wakes the sender, which does not wait for the sweeper. */
export function firstAttemptsAreInTime(evidence: Evidence): void {
  const { rows, broken, postsOf, users } = evidence
  const slow = slowReceivers(evidence)
  for (const { id, messageId, label, attempt, claims, publishedAt } of rows) {
    const [first] = postsOf.get(id) ?? []
    if (!first || attempt > 1 || claims > 1 || slow.has(first.endpoint) || users.retried.has(messageId)) continue
    const lateMs = first.at - publishedAt.getTime()
    if (lateMs > LATE_MS_MAX && first.instance.faultedAt.length === 0) broken('O3', `${label} came ${lateMs} ms late`)
  }
}

const isQuick = (behaviour: Post['behaviour']) =>
  behaviour.kind === 'status' && behaviour.afterMs === undefined && !behaviour.headers

/** Receivers whose open or refused requests make others wait. */
const slowReceivers = ({ ledger }: Evidence) =>
  new Set(ledger.filter(({ behaviour }) => !isQuick(behaviour)).map(({ endpoint }) => endpoint))

/** O5: the rows record what the receivers answered. */
export function rowsMatchAnswers({ byMessage, rows, broken, postsOf }: Evidence): void {
  for (const row of rows) {
    const posts = postsOf.get(row.id) ?? []
    if (row.status === 'success' && !posts.some((post) => succeeds(post) && statusOf(post) === row.responseCode)) {
      broken('O5', `${row.label} is a success that nobody answered`)
    }
    if (row.status === 'failure' && row.errorCode === 'bad_status') {
      const answered = posts.some((post) => statusOf(post) === row.responseCode && !succeeds(post))
      if (!answered) broken('O5', `${row.label} failed with ${row.responseCode}, which nobody answered`)
    }
    const [only] = posts
    if (row.status === 'failure' && posts.length === 1 && only && succeeds(only) && calmDuring(only)) {
      broken('O5', `${row.label} failed although its receiver accepted it`)
    }
    if (row.status === 'skipped' && posts.length > 0 && posts.every(calmDuring)) {
      broken('O5', `${row.label} is skipped although it was sent`)
    }
    const last = posts.at(-1)
    if (last?.behaviour.kind === 'status' && undisturbed(last) && row.responseCode !== last.behaviour.status) {
      broken('O5', `${row.label} is ${row.status} ${row.responseCode}, its last answer was ${last.behaviour.status}`)
    }
    if (row.status === 'success' && followed(byMessage, row))
      broken('O5', `${row.label} goes on after ${row.responseCode}`)
  }
}

const followed = (byMessage: Evidence['byMessage'], row: Row) =>
  (byMessage.get(row.messageId) ?? []).some(({ trigger, attempt }) => trigger === 'event' && attempt > row.attempt)

const calmDuring = ({ instance, at }: Post) => !instance.faultedAt.some((time) => time >= at - 60_000)

/** O6: no delivery stays pending. */
export function nothingStaysPending({ rows, broken }: Evidence): void {
  const pending = rows.filter(({ status }) => status === 'pending')
  if (pending.length > 0) broken('O6', `${pending.length} deliveries stay pending: ${pending[0]?.label}`)
}

/**
 * O8: an attempt has a second request only after a fault of one of its senders, or if the receiver dropped the first request at
 * once.
 */
export function duplicatesAreBounded({ broken, ledger, totals }: Evidence): void {
  for (const posts of Map.groupBy(ledger, ({ deliveryId }) => deliveryId).values()) {
    for (const [i, post] of posts.entries()) {
      const before = posts[i - 1]
      if (!before) continue
      totals.duplicates += 1
      const hit = [before, post].some(({ instance, claimedAt }) =>
        instance.faultedAt.some((time) => time >= claimedAt && time <= post.at),
      )
      const dropped = before.behaviour.kind === 'reset' && before.instance === post.instance
      if (!hit && !dropped)
        broken(
          'O8',
          `${post.label} came to ${post.endpoint} twice without a fault: ${describe(before)}, then ${describe(post)}`,
        )
    }
  }
}

const describe = ({ instance, claimedAt, at }: Post) =>
  `at ${new Date(at).toISOString()} by ${instance.name}, claimed ${at - claimedAt} ms before`
