import type { Installation } from './installation.ts'

/** A request that reached a receiver, and its answer; undefined if it got none. */
export interface Answered {
  messageId: string
  status: number | undefined
}

/** An operation that the API acknowledged: a test event, or an operation whose event goes to so many endpoints. */
export type Promised = { messageId: string } | { projectRef: string; copies: number }

interface Row {
  messageId: string
  trigger: string
  attempt: number
  status: 'pending' | 'success' | 'failure' | 'skipped'
  code: number
  errorCode: string | null
  claims: number
  projectRef: string | null
}

const ATTEMPTS_MAX = 5

/** Compares the requests of the receivers with the rows of the database, once nothing is pending. */
export async function judge(
  { rows }: Installation,
  { answered, promised }: { answered: Answered[]; promised: Promised[] },
) {
  const deliveries = await rows<Row>(`
    select d.message_id as "messageId", d.trigger, d.attempt, d.status, d.response_code as code, d.error_code as "errorCode", d.claims,
      case when e.type = 'v1.project.created' then e.project_ref end as "projectRef"
    from webhook_deliveries d join webhook_events e on e.id = d.event_id order by d.message_id, d.attempt`)
  const messages = Map.groupBy(deliveries, ({ messageId }) => messageId)
  const requests = Map.groupBy(answered, ({ messageId }) => messageId)
  const projects = Map.groupBy(messages.values(), ([first]) => first?.projectRef)

  const lost = [
    ...promised.flatMap((promise) => brokenPromise(promise)),
    ...[...messages.entries()].flatMap(([id, log]) => lostOf(id, log, requests.get(id) ?? [])),
  ]
  const phantom = [...requests.keys()].filter((id) => !messages.has(id)).map((id) => `phantom: ${id}`)
  const untrue = [...messages.entries()].flatMap(([id, log]) => untrueOf(id, log, requests.get(id) ?? []))
  const sum = (numbers: number[]) => numbers.reduce((total, each) => total + each, 0)
  return {
    counts: {
      committed: messages.size,
      acknowledged: promised.length,
      delivered: [...messages.values()].filter((log) => log.at(-1)?.status === 'success').length,
      lost: lost.length,
      duplicates: sum([...messages].map(([id, log]) => Math.max(0, (requests.get(id)?.length ?? 0) - log.length))),
      claimed_again: sum(deliveries.map(({ claims }) => Math.max(0, claims - 1))),
      phantom: phantom.length,
      untrue: untrue.length,
    },
    problems: [...lost, ...phantom, ...untrue],
  }

  function brokenPromise(promise: Promised): string[] {
    if ('messageId' in promise) {
      return messages.has(promise.messageId) ? [] : [`lost: test event ${promise.messageId} was acknowledged`]
    }
    const copies = projects.get(promise.projectRef)?.length ?? 0
    return copies === promise.copies
      ? []
      : [`lost: ${copies} of ${promise.copies} copies for project ${promise.projectRef}`]
  }
}

function lostOf(id: string, log: Row[], requests: Answered[]): string[] {
  const last = log.at(-1)
  const ended =
    last?.status === 'success' ||
    (last?.status === 'failure' && (last.trigger === 'test' || last.attempt === ATTEMPTS_MAX))
  if (requests.length === 0) return [`lost: ${id} never arrived`]
  return ended ? [] : [`lost: ${id} was given up after attempt ${last?.attempt}: ${last?.status}`]
}

/** Each attempt in the log must be a request with that answer, and each request one that was claimed. */
function untrueOf(id: string, log: Row[], requests: Answered[]): string[] {
  const left = requests.map(({ status }) => status)
  const problems = log.flatMap(({ attempt, status, code, errorCode }) => {
    const answer = status === 'success' || errorCode === 'bad_status' ? code : undefined
    const at = left.indexOf(answer)
    if (at >= 0) left.splice(at, 1)
    const known = status === 'success' || errorCode === 'bad_status' || errorCode === 'timeout'
    return at >= 0 && known ? [] : [`untrue: ${id} attempt ${attempt} is ${status} ${code} ${errorCode}`]
  })
  const claims = log.reduce((total, row) => total + row.claims, 0)
  if (requests.length > claims) problems.push(`untrue: ${id} was sent ${requests.length} times with ${claims} claims`)
  return problems
}
