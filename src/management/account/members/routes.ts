import * as z from 'zod'
import { del, empty, get, patch, post } from '../../kernel/route.ts'
import { createInvitations, deleteInvitations } from './invitations.ts'
import { listMembers, listRoles } from './list-members.ts'
import { assignRole, removeMember } from './roles.ts'
import {
  AssignedRole,
  AssignRole,
  CreatedInvitations,
  CreateInvitations,
  DeletedInvitations,
  DeleteInvitations,
  MemberList,
  MemberListQuery,
  RoleList,
} from './schema.ts'

const user_id = z.uuid().toLowerCase()

export const memberRoutes = [
  get('/v2/organizations/{slug}/members', {
    id: 'v2-list-organization-members',
    summary: 'List the members of an organization with their roles',
    scope: 'organizations:read',
    query: MemberListQuery,
    returns: MemberList,
    handle: ({ ctx, organization, query }) => listMembers(ctx, organization, query),
  }),

  get('/v2/organizations/{slug}/roles', {
    id: 'v2-list-organization-roles',
    summary: 'List the roles of an organization',
    scope: 'organizations:read',
    returns: RoleList,
    handle: async () => listRoles(),
  }),

  patch('/v2/organizations/{slug}/members/{user_id}/roles', {
    id: 'v2-assign-organization-member-role',
    summary: 'Assign a role to a member',
    description:
      'Assigns the role in the given projects, or in the whole organization, in place of the other roles there. The last owner cannot lose the role. Requires the plan Enterprise.',
    scope: 'any caller',
    permission: 'organizations:write',
    params: { user_id },
    body: AssignRole,
    returns: AssignedRole,
    errors: ['payment_required.members', 'not_found.member', 'conflict.last_owner'],
    handle: ({ ctx, organization, params, body }) => assignRole(ctx, organization, params.user_id, body),
  }),

  post('/v2/organizations/{slug}/members/invitations', {
    id: 'v2-create-organization-invitations',
    summary: 'Invite people to an organization',
    description:
      'No e-mail is sent: the operator accepts invitations, as the page Access of the documentation describes. Requires the plan Enterprise.',
    scope: 'organizations:write',
    body: CreateInvitations,
    returns: CreatedInvitations,
    status: 201,
    errors: ['payment_required.members', 'conflict.invitations', 'unprocessable.too_many_invitations'],
    handle: ({ ctx, organization, body }) => createInvitations(ctx, organization, body),
  }),

  del('/v2/organizations/{slug}/members/invitations', {
    id: 'v2-delete-organization-invitations',
    summary: 'Cancel invitations',
    description: 'Returns the invitations that were open. Requires the plan Enterprise.',
    scope: 'organizations:write',
    body: DeleteInvitations,
    returns: DeletedInvitations,
    errors: ['payment_required.members'],
    handle: ({ ctx, organization, body }) => deleteInvitations(ctx, organization, body),
  }),

  del('/v2/organizations/{slug}/members/{user_id}', {
    id: 'v2-remove-organization-members',
    summary: 'Remove a member from an organization',
    description: 'The last owner cannot be removed.',
    scope: 'any caller',
    permission: 'organizations:write',
    params: { user_id },
    returns: empty,
    status: 204,
    errors: ['not_found.member', 'conflict.last_owner'],
    handle: ({ ctx, organization, params }) => removeMember(ctx, organization, params.user_id),
  }),
]
