import * as attempts from './oracles/attempts.ts'
import * as endpoints from './oracles/endpoints.ts'
import * as events from './oracles/events.ts'
import { type Facts, gather, type Violation } from './oracles/evidence.ts'

export interface Verdict {
  violations: Violation[]
  /** Deliveries that should have arrived and did not, nor ended with a stated cause. */
  lost: number
  /** Requests for events that were never committed. */
  phantom: number
  wrongEndpoint: number
  /** Requests beyond the first for one attempt. */
  duplicates: number
  posts: number
  deliveries: number
  succeeded: number
  events: number
}

/** Checks all oracles, O1 to O11, once the simulation is quiet. O10: the code under test causes no unexpected error. */
export async function judge(facts: Facts): Promise<Verdict> {
  const evidence = await gather(facts)
  for (const request of facts.users.hanging()) evidence.broken('O10', `${request} never answered`)
  events.everyEventArrivesOrHasReason(evidence)
  events.onlyCommittedEventsAreSent(evidence)
  events.messagesAreConstant(evidence)
  attempts.scheduleIsKept(evidence)
  if (facts.calm && facts.quick) attempts.nextAttemptsAreInTime(evidence)
  if (facts.calm && facts.quick && facts.announced) attempts.firstAttemptsAreInTime(evidence)
  attempts.rowsMatchAnswers(evidence)
  attempts.nothingStaysPending(evidence)
  attempts.duplicatesAreBounded(evidence)
  endpoints.nothingAfterTheEnd(evidence)
  if (facts.calm) endpoints.disabledAttemptsAreNotRepeated(evidence)
  endpoints.goneEndpointsAreDisabled(evidence)
  endpoints.signaturesAreValid(evidence)
  endpoints.deadReceiversAreSpared(evidence)
  const { violations, totals, rows, eventCount } = evidence
  const succeeded = rows.filter(({ status }) => status === 'success').length
  const counts = { posts: facts.ledger.length, deliveries: rows.length, succeeded, events: eventCount.size }
  return { violations, ...totals, ...counts }
}
