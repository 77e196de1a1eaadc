import type { Database } from '../database.ts'
import type { KnownEndpoint, Post } from '../receivers.ts'
import type { Users } from '../users.ts'

export interface Violation {
  oracle: string
  text: string
}

export interface Row {
  id: string
  messageId: string
  endpointId: string
  trigger: string
  attempt: number
  status: string
  claims: number
  responseCode: number
  errorCode: string | null
  label: string
  publishedAt: Date
}

export interface Facts {
  database: Database
  users: Users
  endpoints: Map<string, KnownEndpoint>
  ledger: readonly Post[]
  /** Only publications since then are judged. */
  since: Date
  /** No fault was injected. */
  calm: boolean
  /** Nothing took longer than a call takes, and no attempt was postponed. */
  quick: boolean
  /** No hint of a new delivery was lost or late. */
  announced: boolean
}

/** The committed rows and what the receivers saw. */
export type Evidence = Awaited<ReturnType<typeof gather>>

export async function gather(facts: Facts) {
  const { database, endpoints, ledger, since } = facts
  const rows = await readRows(database, since)
  const violations: Violation[] = []
  return {
    ...facts,
    rows,
    violations,
    committed: await committedChanges(database),
    eventCount: await eventsByLabel(database, since),
    totals: { lost: 0, phantom: 0, wrongEndpoint: 0, duplicates: 0 },
    labelOf: new Map([...endpoints.values()].map(({ id, label }) => [id, label])),
    byLabel: Map.groupBy(rows, ({ label }) => label),
    byMessage: Map.groupBy(rows, ({ messageId }) => messageId),
    postsOf: Map.groupBy(ledger, ({ deliveryId }) => deliveryId),
    broken: (oracle: string, text: string) => violations.push({ oracle, text }),
  }
}

export const readRows = (database: Database, since = new Date(0)): Promise<Row[]> =>
  database.query<Row>(
    `
    select d.id, d.message_id as "messageId", d.endpoint_id as "endpointId", d.trigger, d.attempt, d.status, d.claims,
      d.response_code as "responseCode", d.error_code as "errorCode", v.payload->'secrets'->0->>'name' as label,
      v.published_at as "publishedAt"
    from webhook_deliveries d join webhook_events v on v.id = d.event_id where v.published_at >= $1 order by d.id`,
    [since],
  )

export const succeeds = ({ behaviour }: Post) =>
  behaviour.kind === 'status' && behaviour.status >= 200 && behaviour.status < 300

export const statusOf = ({ behaviour }: Post) =>
  behaviour.kind === 'status' || behaviour.kind === 'stall' ? behaviour.status : 0

/** Whether its sender had no fault after the claim. */
export const undisturbed = ({ instance, claimedAt }: Post) => !instance.faultedAt.some((time) => time >= claimedAt)

/** The audit entry represents the change that the event reports. */
async function committedChanges(database: Database): Promise<Set<string>> {
  const rows = await database.query<{ change: string }>(
    `select detail->>'change' as change from audit_log where action = 'simulated.change'`,
  )
  return new Set(rows.map(({ change }) => change))
}

async function eventsByLabel(database: Database, since: Date): Promise<Map<string, number>> {
  const rows = await database.query<{ label: string; count: number }>(
    `select payload->'secrets'->0->>'name' as label, count(*)::int as count from webhook_events where published_at >= $1 group by 1`,
    [since],
  )
  return new Map(rows.map(({ label, count }) => [label, count]))
}
