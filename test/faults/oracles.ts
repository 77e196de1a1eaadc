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

/** Checks everything that must hold once the simulation is quiet. */
export async function judge(facts: Facts): Promise<Verdict> {
  const evidence = await gather(facts)
  for (const request of facts.users.hanging()) evidence.broken('O10', `${request} never answered`)
  events.everyEventCameOrSaysWhy(evidence)
  events.nothingButCommittedEvents(evidence)
  events.sameBytes(evidence)
  attempts.scheduleIsKept(evidence)
  if (facts.calm && facts.quick) attempts.nextAttemptsAreInTime(evidence)
  if (facts.calm && facts.quick && facts.told) attempts.firstAttemptsAreInTime(evidence)
  attempts.rowsTellTheTruth(evidence)
  attempts.nothingWaits(evidence)
  attempts.duplicatesAreBounded(evidence)
  endpoints.nothingAfterTheEnd(evidence)
  if (facts.calm) endpoints.nothingIsRevived(evidence)
  endpoints.goneIsDisabled(evidence)
  endpoints.signedWithTheSecretOfTheTime(evidence)
  endpoints.theDeadAreSpared(evidence)
  const { violations, totals, rows, eventCount } = evidence
  const succeeded = rows.filter(({ status }) => status === 'success').length
  const counts = { posts: facts.ledger.length, deliveries: rows.length, succeeded, events: eventCount.size }
  return { violations, ...totals, ...counts }
}
