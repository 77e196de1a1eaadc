import * as z from 'zod'
import { ROLES } from '../../../model/roles.ts'
import { Ref, Text, wholeNumber } from '../../../platform/http/common-values.ts'
import { PageLinks, withOneCursor } from '../../../platform/http/pagination.ts'

const PROJECTS_MAX = 250
const EMAIL_LENGTH_MAX = 320

/** E-mail address in lower case, so that each address has one spelling. */
const Email = z.email().max(EMAIL_LENGTH_MAX).toLowerCase()

export const MemberListQuery = withOneCursor(
  z.object({
    'page[size]': wholeNumber(1, 100).default(20),
    'page[after]': z.uuid().toLowerCase().optional(),
    'page[before]': z.uuid().toLowerCase().optional(),
    'filter[username]': Text.optional().meta({ description: 'The exact user name; empty for all members' }),
    'filter[primary_email]': Email.optional(),
  }),
)

const MemberRole = z
  .object({
    name: z.string(),
    scope: z.enum(['organization', 'project']),
    projects: z.array(z.object({ ref: Ref, name: z.string() })),
  })
  .meta({ id: 'OrganizationMemberRole' })

export const MemberList = z
  .object({
    data: z.array(
      z.object({
        type: z.literal('organization_member'),
        id: z.uuid(),
        attributes: z.object({
          username: z.string().nullable(),
          primary_email: z.string().nullable(),
          mfa_enabled: z.boolean(),
          is_sso_user: z.boolean(),
          avatar_url: z.string().nullable(),
          roles: z.array(MemberRole),
        }),
      }),
    ),
    links: PageLinks,
  })
  .meta({ id: 'OrganizationMemberList' })

export const RoleList = z
  .object({
    data: z.array(
      z.object({
        type: z.literal('organization_role'),
        id: z.enum(ROLES).meta({ description: 'The name of the role in requests' }),
        attributes: z.object({ name: z.string() }),
      }),
    ),
  })
  .meta({ id: 'OrganizationRoleList' })

/** A role in the whole organization, or in `projects` and their branches. */
const assignment = {
  role: z.enum(ROLES),
  projects: z
    .array(z.object({ ref: Ref }))
    .min(1)
    .max(PROJECTS_MAX)
    .optional(),
}

export const AssignRole = z
  .object({ data: z.object({ type: z.literal('organization_member_role'), attributes: z.object(assignment) }) })
  .meta({ id: 'AssignOrganizationMemberRole' })

export const AssignedRole = z
  .object({ data: z.object({ type: z.literal('organization_member_role'), attributes: MemberRole }) })
  .meta({ id: 'AssignedOrganizationMemberRole' })

const type = z.literal('organization_invitation')
const Invited = z.object({ type, attributes: z.object({ email: Email }) })

export const CreateInvitations = z
  .object({
    data: z
      .array(
        z.object({
          type,
          attributes: z.object({
            email: Email,
            ...assignment,
            require_sso: z
              .literal(false, 'members of this installation have no single sign-on: must be false')
              .optional(),
          }),
        }),
      )
      .min(1)
      .max(50),
  })
  .meta({ id: 'CreateOrganizationInvitations' })

export const CreatedInvitations = z
  .object({
    data: z.array(Invited),
    error: z
      .object({
        code: z.literal('organization_invitations_partially_failed'),
        message: z.string(),
        issues: z.array(z.object({ code: z.string(), message: z.string(), meta: z.object({ email: z.string() }) })),
      })
      .optional()
      .meta({ description: 'Present if some invitations were not created, with the reason for each' }),
  })
  .meta({ id: 'CreatedOrganizationInvitations' })

export const DeleteInvitations = z
  .object({ data: z.array(Invited).min(1).max(100) })
  .meta({ id: 'DeleteOrganizationInvitations' })

export const DeletedInvitations = z.object({ data: z.array(Invited) }).meta({ id: 'DeletedOrganizationInvitations' })
