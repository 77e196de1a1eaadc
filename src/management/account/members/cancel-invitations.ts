import { and, eq, sql } from 'drizzle-orm'
import { roleAllows } from '../../../model/roles.ts'
import { invitations } from '../../../model/tables/index.ts'
import type { Mutation } from '../../kernel/mutate.ts'
import { type HeldRole, type Member, type MemberChange, toEventRole } from './member-change.ts'

/** Columns that the events of an invitation need. */
export const INVITATION = { email: invitations.email, role: invitations.role, projectRefs: invitations.projectRefs }
export type InvitationRow = Pick<typeof invitations.$inferSelect, keyof typeof INVITATION>

/** Cancels the open invitations that a member has sent and, with the roles `after` a change, could no longer send. */
export async function cancelInvitationsBy(
  change: MemberChange,
  { organization, user }: Member,
  after: readonly HeldRole[],
): Promise<void> {
  const own = after.find(({ projectRef }) => projectRef === null)?.role
  if (own === 'owner') return
  const mayInvite = own !== undefined && roleAllows(own, 'organizations:write')
  const isBy = and(eq(invitations.organizationId, organization.id), eq(invitations.invitedBy, user.id))
  const canceled = await change.tx
    .delete(invitations)
    .where(and(isBy, mayInvite ? eq(invitations.role, 'owner') : undefined))
    .returning(INVITATION)
  if (canceled.length > 0) await recordInvitations(change, organization, 'canceled', canceled)
}

/** Cancels invitations to projects that have left the organization. An invitation to other projects too stays for those. */
export async function cancelInvitationsTo(
  mutation: Mutation,
  organization: Member['organization'],
  refs: readonly string[],
): Promise<void> {
  const { tx } = mutation
  const lostRefs = sql`${sql.param(refs)}::text[]`
  const isOfOrganization = eq(invitations.organizationId, organization.id)
  const canceled = await tx
    .delete(invitations)
    .where(and(isOfOrganization, sql`${invitations.projectRefs} <@ ${lostRefs}`))
    .returning(INVITATION)
  await tx
    .update(invitations)
    .set({
      projectRefs: sql`array(select ref from unnest(${invitations.projectRefs}) ref where ref <> all (${lostRefs}))`,
    })
    .where(and(isOfOrganization, sql`${invitations.projectRefs} && ${lostRefs}`))
  if (canceled.length > 0) await recordInvitations(mutation, organization, 'canceled', canceled)
}

/** Publishes the events of invitations, and writes the audit entry. */
export async function recordInvitations(
  { publish, trace }: Pick<MemberChange, 'publish' | 'trace'>,
  { id, slug }: Member['organization'],
  verb: 'created' | 'canceled',
  rows: readonly InvitationRow[],
): Promise<void> {
  await publish(
    rows.map(({ email, role, projectRefs }) => ({
      type: `v1.organization.member.invitation.${verb}` as const,
      organization: { id, slug },
      projectRef: null,
      fields: { member: { invitation: { email, role: toEventRole({ role, refs: projectRefs }) } } },
    })),
  )
  const emails = rows.map(({ email }) => email)
  await trace({
    action: `invitation.${verb === 'created' ? 'create' : 'cancel'}`,
    organizationId: id,
    detail: { emails },
  })
}
