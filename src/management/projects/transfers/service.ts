import type * as z from 'zod'
import { findOrganization, type ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { mutate } from '../../kernel/mutate.ts'
import type { Transfer, TransferPreview } from './schema.ts'
import { type Findings, findIn, type Move, NOT_ALLOWED } from './transfer-findings.ts'
import { finishMove, lockMove, moveLocked } from './transfer-move.ts'

type Input = z.output<typeof Transfer>

/** 404 for a target that the caller cannot see, as for what does not exist. */
async function moveOf(ctx: Ctx, project: ProjectAccess, { data }: Input): Promise<Move> {
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
  const findings = withoutForeign(await findIn(ctx.db, await moveOf(ctx, project, input)))
  const valid = findings.errors.length === 0
  return { data: { type: 'project_transfer_result', attributes: { valid, ...findings } } }
}

/** Who could not do it hears no more of the other organization than that. */
function withoutForeign(findings: Findings): Findings {
  const notAllowed = findings.errors.filter(({ key }) => NOT_ALLOWED.includes(key))
  return notAllowed.length > 0 ? { errors: notAllowed, warnings: [], info: [] } : findings
}

/** One transaction. */
export async function transferProject(ctx: Ctx, project: ProjectAccess, input: Input): Promise<void> {
  const move = await moveOf(ctx, project, input)
  const moved = await mutate(ctx, async (mutation) => {
    const locked = await lockMove(mutation, move)
    if (!locked) throw new ApiError('conflict.project_status', { detail: `it has left ${project.organizationSlug}` })
    const field = 'body.data.attributes.target_organization_slug'
    return moveLocked(ctx, mutation, locked, { action: 'project.transfer', field })
  })
  finishMove(ctx, moved)
}
