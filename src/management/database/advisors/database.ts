import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { parseRows } from '../../../engine/engine.ts'
import { runnerPasswordOf } from '../../../model/secrets/project.ts'
import { checkStatement, type DatabaseCheck } from './checks/statement.ts'
import type { Finding } from './finding.ts'

/** Shorter than the lock timeout, so that a long lock ends in a timeout and not in a refusal. */
const CHECK_SECONDS_MAX = 20

/** Runs all checks as a read-only role, in one session and one query. Throws the engine's errors. */
export async function checkDatabase(
  ctx: Ctx,
  project: ProjectAccess,
  lints: readonly DatabaseCheck[],
  apiSchemas: readonly string[],
): Promise<Finding[]> {
  const result = await ctx.engine.runSql({
    ref: project.ref,
    runnerPassword: await runnerPasswordOf(ctx, project),
    query: checkStatement(lints, apiSchemas),
    readOnly: true,
    timeoutMs: Math.min(ctx.config.SQL_TIMEOUT_SECONDS, CHECK_SECONDS_MAX) * 1000,
  })
  return (await parseRows(result)) as Finding[]
}
