import { eq } from 'drizzle-orm'
import type { BranchAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { EngineUnavailable, SqlError, SqlResultTooLarge, SqlTimeout } from '../../../engine/engine-errors.ts'
import { projects, type RunKind } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { findMigration } from '../../database/migrations/history.ts'
import { ACTIVE } from '../../projects/projects/project-states.ts'
import { readSavedHistory } from './branch-steps.ts'

/** Refuses a version that the run would not find. If the database does not respond now, the run itself checks it. */
export async function requireMigration(
  ctx: Ctx,
  { projectRef, parentRef }: BranchAccess,
  kind: RunKind,
  version: string,
): Promise<void> {
  const ref = kind === 'push' ? parentRef : projectRef
  const [source] = await ctx.db
    .select({ ref: projects.ref, status: projects.status, sealedRunnerPassword: projects.sealedRunnerPassword })
    .from(projects)
    .where(eq(projects.ref, ref))
  if (!source || !ACTIVE.includes(source.status)) return
  const found = await findMigration(ctx, source, version).catch((error) => {
    if (error instanceof EngineUnavailable) return 'unknown'
    if (isQueryError(error)) throw refusal(`the migrations of ${ref} cannot be read: ${error.message}`, error)
    throw error
  })
  if (found) return
  const earlier = kind === 'reset' ? await readSavedHistory(ctx, projectRef) : []
  if (earlier.some((migration) => migration.version === version)) return
  throw refusal(`${ref} has no migration ${version}`)
}

/** Whether the history could not be read, because the owner can change or lock its table. */
const isQueryError = (error: unknown): error is Error =>
  error instanceof SqlError || error instanceof SqlTimeout || error instanceof SqlResultTooLarge

const refusal = (message: string, cause?: unknown): ApiError =>
  new ApiError('bad_request.validation_failed', {
    issues: [{ field: 'body.migration_version', code: 'unknown', message }],
    cause,
  })
