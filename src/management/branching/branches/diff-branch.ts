import { eq } from 'drizzle-orm'
import type * as z from 'zod'
import type { BranchAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { runnerPasswordOf } from '../../../model/secrets/project.ts'
import { projects } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { throwApiError } from '../../database/database/service.ts'
import { checkStatus } from '../../projects/projects/status.ts'
import { requireActiveParent } from './parent-project.ts'
import type { DiffQuery } from './schema.ts'

export async function diffBranch(
  ctx: Ctx,
  { isDefault, parentRef, project }: BranchAccess,
  { included_schemas: schemas }: z.output<typeof DiffQuery>,
): Promise<string> {
  if (isDefault) throw new ApiError('unprocessable.branch', { detail: 'it is the default branch' })
  checkStatus(project.status)
  const [parent] = await ctx.db.select().from(projects).where(eq(projects.ref, parentRef))
  if (!parent) throw new ApiError('not_found.branch')
  requireActiveParent(parent.status)
  const [from, to] = await Promise.all(
    [parent, project].map(async (side) => ({
      ref: side.ref,
      runnerPassword: await runnerPasswordOf(ctx, side),
    })),
  )
  if (!from || !to) throw new ApiError('not_found.branch')
  return ctx.engine.diff({ from, to, ...(schemas && { schemas }) }).catch(throwApiError)
}
