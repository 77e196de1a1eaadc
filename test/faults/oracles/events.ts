import { type Evidence, type Row, succeeds } from './evidence.ts'

const ATTEMPTS_MAX = 5

/** O1: each committed event reaches each of its endpoints once, or its row says why not. */
export function everyEventArrivesOrHasReason(evidence: Evidence): void {
  const { endpoints, byLabel, committed, eventCount, broken, labelOf, users, totals } = evidence
  const tries = Map.groupBy(users.publications.values(), ({ change }) => change)
  for (const change of committed) {
    const events = (tries.get(change) ?? []).filter(({ label }) => eventCount.has(label))
    if (events.length !== 1) broken('O1', `${change} was committed with ${events.length} events`)
  }
  for (const [label, count] of eventCount) if (count > 1) broken('O1', `${label} is ${count} events`)
  for (const { label, change, wanted } of users.publications.values()) {
    if (!committed.has(change) || !eventCount.has(label)) continue
    for (const endpointId of wanted) {
      const name = labelOf.get(endpointId) ?? endpointId
      if (endpoints.get(name)?.states.at(-1)?.deleted ?? true) continue
      const copies = (byLabel.get(label) ?? []).filter((row) => row.endpointId === endpointId)
      const messages = new Set(copies.map(({ messageId }) => messageId))
      if (messages.size > 1) broken('O1', `${label} has ${messages.size} copies for ${name}`)
      if (arrivedOrHasReason(evidence, name, copies)) continue
      totals.lost += 1
      const states = copies.map(({ attempt, status }) => `${attempt} ${status}`).join(', ')
      broken('O1', `${label} never came to ${name} (${states || 'no row'})`)
    }
  }
}

/** Whether an event reached a receiver that accepted it, or its row explains why not. */
function arrivedOrHasReason(evidence: Evidence, endpoint: string, copies: Row[]): boolean {
  const posts = copies.flatMap(({ id }) => evidence.postsOf.get(id) ?? [])
  const taken = posts.some((post) => post.label === copies[0]?.label && post.endpoint === endpoint && succeeds(post))
  if (taken && copies.some(({ status }) => status === 'success')) return true
  return copies.some((row) => endsWithCause(evidence, row))
}

function endsWithCause({ endpoints, labelOf }: Evidence, row: Row): boolean {
  const { trigger, attempt, status, errorCode, endpointId, publishedAt } = row
  const states = endpoints.get(labelOf.get(endpointId) ?? '')?.states ?? []
  const wasDisabled = states.some(
    ({ enabled }, i) => !enabled && (states[i + 1]?.at ?? Number.POSITIVE_INFINITY) >= publishedAt.getTime(),
  )
  if (status === 'skipped') return wasDisabled
  if (status !== 'failure' || !errorCode) return false
  return (trigger === 'event' && attempt === ATTEMPTS_MAX) || wasDisabled || errorCode === 'sender_died'
}

/** O2: endpoints get only committed events that are for them. */
export function onlyCommittedEventsAreSent({
  byLabel,
  committed,
  eventCount,
  broken,
  labelOf,
  ledger,
  users,
  totals,
}: Evidence): void {
  for (const { label, endpoint } of ledger) {
    const publication = users.publications.get(label)
    if (!publication || !committed.has(publication.change) || !eventCount.has(label)) {
      totals.phantom += 1
      broken('O2', `${endpoint} got ${label}, which was not committed`)
    } else if (![...publication.wanted].some((id) => labelOf.get(id) === endpoint)) {
      totals.wrongEndpoint += 1
      broken('O2', `${endpoint} got ${label}, which is not for it`)
    }
  }
  for (const [label, rows] of byLabel) {
    const wanted = users.publications.get(label)?.wanted
    const stray = wanted && rows.find(({ endpointId }) => !wanted.has(endpointId))
    if (stray)
      broken('O2', `${label} has a delivery to ${labelOf.get(stray.endpointId)}, which did not subscribe to it`)
  }
  for (const label of eventCount.keys()) {
    const change = users.publications.get(label)?.change ?? ''
    if (!committed.has(change)) broken('O2', `the event ${label} was not committed`)
  }
}

/** O4: all requests of a message have the same body and go to one endpoint, which gets the event under one id. */
export function messagesAreConstant({ broken, ledger }: Evidence): void {
  for (const [messageId, posts] of Map.groupBy(ledger, (post) => post.messageId)) {
    if (new Set(posts.map(({ bodyHash }) => bodyHash)).size > 1) broken('O4', `${messageId} came with several bodies`)
    if (new Set(posts.map(({ endpoint }) => endpoint)).size > 1) broken('O4', `${messageId} came to several endpoints`)
    if (!posts.every(({ body }) => JSON.parse(body).id === messageId)) broken('O4', `${messageId} is not in its body`)
  }
  for (const [, posts] of Map.groupBy(ledger, ({ endpoint, label }) => `${endpoint} ${label}`)) {
    if (new Set(posts.map(({ messageId }) => messageId)).size > 1)
      broken('O4', `${posts[0]?.label} came to ${posts[0]?.endpoint} under several ids`)
  }
}
