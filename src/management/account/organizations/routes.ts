import * as z from 'zod'
import { get, post } from '../../kernel/route.ts'
import { CreateOrganization, Member, Organization, OrganizationHandle } from './schema.ts'
import { createOrganization, listMembers, listOrganizations, toOrganization } from './service.ts'

export const organizationRoutes = [
  get('/v1/organizations', {
    id: 'v1-list-all-organizations',
    summary: 'List the organizations of the caller',
    scope: 'organizations:read',
    returns: z.array(OrganizationHandle),
    handle: ({ ctx }) => listOrganizations(ctx),
  }),

  post('/v1/organizations', {
    id: 'v1-create-an-organization',
    summary: 'Create an organization',
    scope: 'any caller',
    permission: 'organizations:write',
    body: CreateOrganization,
    returns: OrganizationHandle,
    status: 201,
    errors: ['forbidden.permission_denied'],
    handle: ({ ctx, body }) => createOrganization(ctx, body),
  }),

  get('/v1/organizations/{slug}', {
    id: 'v1-get-an-organization',
    summary: 'Get an organization',
    scope: 'organizations:read',
    returns: Organization,
    handle: async ({ organization }) => toOrganization(organization),
  }),

  get('/v1/organizations/{slug}/members', {
    id: 'v1-list-organization-members',
    summary: 'List the members of an organization',
    scope: 'organizations:read',
    returns: z.array(Member),
    handle: ({ ctx, organization }) => listMembers(ctx, organization),
  }),
]
