import { del, empty, get, post } from '../../kernel/route.ts'
import { createClaimToken, deleteClaimToken, getClaimToken } from './claim-tokens.ts'
import { ClaimToken, NewClaimToken, ProjectClaim, Token } from './schema.ts'
import { claimProject, getClaim } from './service.ts'

const params = { token: Token }
const NO_STORE = { 'cache-control': 'no-store' }

export const claimRoutes = [
  get('/v1/projects/{ref}/claim-token', {
    id: 'v1-get-project-claim-token',
    summary: 'Get the metadata of the claim token of a project',
    scope: 'any caller',
    permission: 'projects:read',
    returns: ClaimToken,
    errors: ['not_found.claim_token'],
    handle: ({ ctx, project }) => getClaimToken(ctx, project),
  }),

  post('/v1/projects/{ref}/claim-token', {
    id: 'v1-create-project-claim-token',
    summary: 'Create a claim token for a project',
    description:
      'With the token, another user can move the project to one of their organizations. It replaces the previous token, is valid for a day and can be used once. Only owners and administrators of the organization may create one; the access token also needs the scope organizations:write.',
    scope: 'any caller',
    permission: 'projects:write',
    returns: NewClaimToken,
    headers: NO_STORE,
    errors: ['unprocessable.branch'],
    handle: ({ ctx, project }) => createClaimToken(ctx, project),
  }),

  del('/v1/projects/{ref}/claim-token', {
    id: 'v1-delete-project-claim-token',
    summary: 'Delete the claim token of a project',
    description:
      'Only owners and administrators of the organization may delete it; the access token also needs the scope organizations:write.',
    scope: 'any caller',
    permission: 'projects:write',
    returns: empty,
    status: 204,
    handle: ({ ctx, project }) => deleteClaimToken(ctx, project),
  }),

  get('/v1/organizations/{slug}/project-claim/{token}', {
    id: 'v1-get-organization-project-claim',
    summary: 'Preview the claim of a project',
    description:
      'Names the project of the claim token, and says whether the organization can claim it and what that would change.',
    scope: 'any caller',
    permission: 'organizations:write',
    params,
    countsMisses: true,
    returns: ProjectClaim,
    headers: NO_STORE,
    errors: ['not_found.project_claim'],
    handle: ({ ctx, organization, params }) => getClaim(ctx, organization, params.token),
  }),

  post('/v1/organizations/{slug}/project-claim/{token}', {
    id: 'v1-claim-project-for-organization',
    summary: 'Claim a project for an organization',
    description: 'Transfers the project and its branches to the organization. The claim token cannot be used again.',
    scope: 'any caller',
    permission: 'organizations:write',
    params,
    countsMisses: true,
    returns: empty,
    status: 204,
    errors: ['not_found.project_claim', 'unprocessable.transfer'],
    handle: ({ ctx, organization, params }) => claimProject(ctx, organization, params.token),
  }),
]
