import { del, empty, get, post } from '../../kernel/route.ts'
import { createClaimToken, deleteClaimToken, getClaimToken } from './claim-tokens.ts'
import { ClaimToken, NewClaimToken, ProjectClaim, Token } from './schema.ts'
import { claimProject, getClaim } from './service.ts'

const params = { token: Token }
const NO_STORE = { 'cache-control': 'no-store' }

export const claimRoutes = [
  get(
    '/v1/projects/{ref}/claim-token',
    {
      id: 'v1-get-project-claim-token',
      summary: 'Get what is known of the claim token of a project, but not the token',
      scope: 'any caller',
      permission: 'projects:read',
      returns: ClaimToken,
      errors: ['not_found.claim_token'],
    },
    ({ ctx, project }) => getClaimToken(ctx, project),
  ),

  post(
    '/v1/projects/{ref}/claim-token',
    {
      id: 'v1-create-project-claim-token',
      summary: 'Create a claim token, by which somebody else takes the project into an organization of his',
      description:
        'In place of the one before. For a day and once. For owners and administrators of the organization; the access token needs organizations:write too.',
      scope: 'any caller',
      permission: 'projects:write',
      returns: NewClaimToken,
      headers: NO_STORE,
      errors: ['unprocessable.branch'],
    },
    ({ ctx, project }) => createClaimToken(ctx, project),
  ),

  del(
    '/v1/projects/{ref}/claim-token',
    {
      id: 'v1-delete-project-claim-token',
      summary: 'Delete the claim token of a project, if it has one',
      description: 'For owners and administrators of the organization; the access token needs organizations:write too.',
      scope: 'any caller',
      permission: 'projects:write',
      returns: empty,
      status: 204,
    },
    ({ ctx, project }) => deleteClaimToken(ctx, project),
  ),

  get(
    '/v1/organizations/{slug}/project-claim/{token}',
    {
      id: 'v1-get-organization-project-claim',
      summary: 'Tell what a claim token is for, whether the organization can claim that, and what it would change',
      scope: 'any caller',
      permission: 'organizations:write',
      params,
      countsMisses: true,
      returns: ProjectClaim,
      headers: NO_STORE,
      errors: ['not_found.project_claim'],
    },
    ({ ctx, organization, params }) => getClaim(ctx, organization, params.token),
  ),

  post(
    '/v1/organizations/{slug}/project-claim/{token}',
    {
      id: 'v1-claim-project-for-organization',
      summary: 'Claim a project for an organization',
      description: 'A transfer of the project with its branches, which uses the token up.',
      scope: 'any caller',
      permission: 'organizations:write',
      params,
      countsMisses: true,
      returns: empty,
      status: 204,
      errors: ['not_found.project_claim', 'unprocessable.transfer'],
    },
    ({ ctx, organization, params }) => claimProject(ctx, organization, params.token),
  ),
]
