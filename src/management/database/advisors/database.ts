import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { parseRows } from '../../../engine/engine.ts'
import { runnerPasswordOf } from '../../../model/secrets/project.ts'
import { checkStatement, type DatabaseCheck } from './checks/statement.ts'
import type { Finding } from './finding.ts'
import type { Lint } from './schema.ts'

/** Below what a statement waits for a lock, so that one that is held long ends as too slow and not as refused. */
const CHECK_SECONDS_MAX = 20

interface Row {
  lint: DatabaseCheck
  schema: string | null
  name: string | null
  type: Lint['metadata']['type']
  key: string[]
  detail: string
  more: Pick<Lint['metadata'], 'fkey_name' | 'fkey_columns'> | null
  total: number
}

/** As who may only read, in one session and one look at the catalogue for all lints. Throws as the engine does. */
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
  // What the statement selects is what its rows are made of.
  return ((await parseRows(result)) as Row[]).map(({ lint, schema, name, type, key, detail, more, total }) => {
    const metadata = { type, ...(schema !== null && { schema }), ...(name !== null && { name }), ...more }
    return { lint, detail, key, metadata, total }
  })
}
