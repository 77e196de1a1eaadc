import { findProject, requirePermission } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import type { Answer } from '../../kernel/route.ts'
import { createClaimToken } from '../../projects/claims/claim-tokens.ts'
import { Refusal, readRequest, redirectBack } from './authorization-request.ts'
import type { ClaimQuery } from './schema.ts'

/** Begins a claim: the owner of the project requests a claim token, and the user continues with the URL that contains it. */
export async function beginClaim(ctx: Ctx, { project_ref: ref, ...query }: ClaimQuery): Promise<Answer> {
  const project = await findProject(ctx, ref)
  requirePermission(project.role, 'projects:write')
  const request = await readRequest(ctx, query)
  if (request instanceof Refusal) return redirectBack(query, request)
  const { token } = await createClaimToken(ctx, project)
  const parameters = Object.entries(query).filter((field): field is [string, string] => field[1] !== undefined)
  const location = `${ctx.config.BASE_URL}/v1/oauth/authorize/project-claim/${token}?${new URLSearchParams(parameters)}`
  return { status: 303, headers: { location } }
}
