import { ROLE_NAMES, type Role } from '../../../model/roles.ts'
import type { NewEvent } from '../../../outbound/events/publish.ts'
import type { Writer } from '../../../platform/db/client.ts'

/** A role in the whole organization, or in one project. */
export interface HeldRole {
  role: Role
  projectRef: string | null
}

/** Transaction, audit log and event publisher of a role change, which the API and `npm run admin` provide. */
export interface MemberChange {
  tx: Pick<Writer, 'select' | 'insert' | 'delete'>
  trace(entry: { action: string; organizationId: string; detail: Record<string, unknown> }): Promise<void>
  publish(events: readonly NewEvent[]): Promise<void>
}

export interface Member {
  organization: { id: string; slug: string }
  user: { id: string; primaryEmail: string }
}

/** A role with the projects it applies to; null for the whole organization, which includes every project. */
export interface Assignment {
  role: Role
  refs: readonly string[] | null
}

/** Converts a role to its form in events. */
export const toEventRole = ({ role, refs }: Assignment) => ({
  name: ROLE_NAMES[role],
  projects: refs?.toSorted().map((ref) => ({ ref })) ?? null,
})
