import { and, eq, inArray, sql } from 'drizzle-orm'
import type * as z from 'zod'
import type { OrganizationAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import type { Role } from '../../../model/roles.ts'
import { invitations, memberRoles, users } from '../../../model/tables/index.ts'
import { rowsOf, type Writer } from '../../../platform/db/client.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { mutate } from '../../kernel/mutate.ts'
import { requirePlan } from '../organizations/plan-features.ts'
import { INVITATION, type InvitationRow, recordInvitations } from './cancel-invitations.ts'
import { findProjects, lockMembers, requireMayChange, requireProjects } from './roles.ts'
import type { CreatedInvitations, CreateInvitations, DeletedInvitations, DeleteInvitations } from './schema.ts'

/** Maximum number of open invitations of an organization. */
const OPEN_MAX = 1_000

/** Creates invitations. Members and invited addresses are skipped and reported; any other error refuses the whole request. */
export async function createInvitations(
  ctx: Ctx,
  organization: OrganizationAccess,
  { data }: z.output<typeof CreateInvitations>,
): Promise<z.input<typeof CreatedInvitations>> {
  requirePlan(organization, 'members')
  const requested = data.map(({ attributes }) => attributes)
  requireMayChange(organization, new Set<Role>(requested.map(({ role }) => role)))
  requireDistinctEmails(requested.map(({ email }) => email))
  return mutate(ctx, async (mutation) => {
    const { tx } = mutation
    await lockMembers(ctx, mutation, organization)
    const found = await findProjects(
      tx,
      organization,
      requested.flatMap(({ projects = [] }) => projects),
    )
    const newRows = requested.map(({ email, role, projects }, index): InvitationRow => {
      const named = projects && requireProjects(found, projects, `body.data.${index}.attributes`)
      return { email, role, projectRefs: named?.map(({ ref }) => ref) ?? null }
    })
    const skipped = await findSkippedEmails(tx, organization, newRows)
    const invited = newRows.filter(({ email }) => !skipped.has(email))
    if (invited.length === 0) throw nobodyInvited(newRows, skipped)
    await requireBelowLimit(tx, organization, invited.length)
    const common = { organizationId: organization.id, invitedBy: ctx.actor.userId, createdAt: ctx.now() }
    await tx.insert(invitations).values(invited.map((row) => ({ ...common, ...row })))
    await recordInvitations(mutation, organization, 'created', invited)
    return { data: invited.map(toInvitation), ...(skipped.size > 0 && { error: partialFailure(skipped) }) }
  })
}

function requireDistinctEmails(emails: readonly string[]): void {
  const issues = emails.flatMap((email, index) =>
    emails.indexOf(email) === index
      ? []
      : [
          {
            field: `body.data.${index}.attributes.email`,
            code: 'custom',
            message: 'occurs more than once in the list',
          },
        ],
  )
  if (issues.length > 0) throw new ApiError('bad_request.validation_failed', { issues })
}

const SKIP_MESSAGES = { already_member: 'is already a member', already_invited: 'is already invited' } as const
type SkippedEmails = Map<string, keyof typeof SKIP_MESSAGES>

async function findSkippedEmails(
  tx: Writer,
  { id }: OrganizationAccess,
  newRows: readonly InvitationRow[],
): Promise<SkippedEmails> {
  const emails = newRows.map(({ email }) => email)
  const rows = await rowsOf<{ email: string; reason: keyof typeof SKIP_MESSAGES }>(
    tx,
    sql`select w.email, case when exists (select from ${memberRoles} m join ${users} u on u.id = m.user_id
          where m.organization_id = ${id} and lower(u.primary_email) = w.email) then 'already_member'
        when exists (select from ${invitations} i where i.organization_id = ${id} and i.email = w.email)
          then 'already_invited' end as reason
      from unnest(${sql.param(emails)}::text[]) as w (email)`,
  )
  return new Map(rows.flatMap(({ email, reason }) => (reason ? [[email, reason] as const] : [])))
}

const nobodyInvited = (newRows: readonly InvitationRow[], skipped: SkippedEmails) =>
  new ApiError('conflict.invitations', {
    issues: newRows.flatMap(({ email }, index) => {
      const code = skipped.get(email)
      return code ? [{ field: `body.data.${index}.attributes.email`, code, message: SKIP_MESSAGES[code] }] : []
    }),
  })

const partialFailure = (skipped: SkippedEmails) => ({
  code: 'organization_invitations_partially_failed' as const,
  message: 'Some invitations were not created',
  issues: Array.from(skipped, ([email, code]) => ({
    code,
    message: `${email} ${SKIP_MESSAGES[code]}`,
    meta: { email },
  })),
})

async function requireBelowLimit(tx: Writer, { id }: OrganizationAccess, added: number): Promise<void> {
  const open = await tx.$count(invitations, eq(invitations.organizationId, id))
  if (open + added <= OPEN_MAX) return
  throw new ApiError('unprocessable.too_many_invitations', { detail: `${open} of at most ${OPEN_MAX} are open` })
}

/** Cancels invitations and returns those that were open. */
export async function deleteInvitations(
  ctx: Ctx,
  organization: OrganizationAccess,
  { data }: z.output<typeof DeleteInvitations>,
): Promise<z.input<typeof DeletedInvitations>> {
  requirePlan(organization, 'members')
  const emails = data.map(({ attributes }) => attributes.email)
  return mutate(ctx, async (mutation) => {
    await lockMembers(ctx, mutation, organization)
    const canceled = await mutation.tx
      .delete(invitations)
      .where(and(eq(invitations.organizationId, organization.id), inArray(invitations.email, emails)))
      .returning(INVITATION)
    requireMayChange(organization, new Set(canceled.map(({ role }) => role)))
    if (canceled.length > 0) await recordInvitations(mutation, organization, 'canceled', canceled)
    return { data: canceled.map(toInvitation) }
  })
}

const toInvitation = ({ email }: InvitationRow) => ({ type: 'organization_invitation' as const, attributes: { email } })
