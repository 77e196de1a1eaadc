import type * as z from 'zod'
import { findOrganization, type ProjectAccess, requireTokenScope } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { mutate } from '../../kernel/mutate.ts'
import type { Transfer, TransferPreview } from './schema.ts'
import { type Findings, findTransferFindings, type Move, OWNER_ERRORS } from './transfer-findings.ts'
import { finishMove, lockMove, moveLockedProject } from './transfer-move.ts'

type Input = z.output<typeof Transfer>

/**
 * Resolves both organizations. A target that the caller cannot see gets the same 404 as one that does not exist. Requires
 * organizations:write, as the project leaves the organization: access to the project alone is not enough.
 */
async function moveOf(ctx: Ctx, project: ProjectAccess, { data }: Input): Promise<Move> {
  requireTokenScope(ctx.actor, 'organizations:write')
  const [source, target] = await Promise.all([
    findOrganization(ctx, project.organizationSlug),
    findOrganization(ctx, data.attributes.target_organization_slug),
  ])
  const { userId } = ctx.actor
  return { project, source, target, giverId: userId, takerId: userId, roles: ['owner'] }
}

export async function previewTransfer(
  ctx: Ctx,
  project: ProjectAccess,
  input: Input,
): Promise<z.input<typeof TransferPreview>> {
  const findings = hideForeign(await findTransferFindings(ctx.db, await moveOf(ctx, project, input)))
  const valid = findings.errors.length === 0
  return { data: { type: 'project_transfer_result', attributes: { valid, ...findings } } }
}

/** Reduces the findings for a caller who may not transfer the project: they must not learn more about the other organization. */
function hideForeign(findings: Findings): Findings {
  const notAllowed = findings.errors.filter(({ key }) => OWNER_ERRORS.includes(key))
  return notAllowed.length > 0 ? { errors: notAllowed, warnings: [], info: [] } : findings
}

export async function transferProject(ctx: Ctx, project: ProjectAccess, input: Input): Promise<void> {
  const move = await moveOf(ctx, project, input)
  const moved = await mutate(ctx, async (mutation) => {
    const locked = await lockMove(mutation, move)
    if (!locked)
      throw new ApiError('conflict.project_status', {
        detail: `it does not belong to ${project.organizationSlug} any more`,
      })
    const field = 'body.data.attributes.target_organization_slug'
    return moveLockedProject(ctx, mutation, locked, { action: 'project.transfer', field })
  })
  finishMove(ctx, moved)
}
