import type { SystemCtx } from '../../../ctx.ts'
import { projects } from '../../../model/tables/index.ts'
import { requireRow } from '../../../platform/db/require-row.ts'
import { randomLetters } from '../../../platform/http/common-values.ts'
import type { Mutation } from '../../kernel/mutate.ts'
import { insertKeys, newDefaultKeys } from '../../keys/api-keys/service.ts'
import { sealSecrets } from './project-secrets.ts'

/** The ref, sealed secrets and API keys of a project that is about to be inserted. */
export type NewProject = Awaited<ReturnType<typeof prepareProject>>

/** Creates the secrets and keys of a new project. Call it before the transaction, because sealing takes time. */
export async function prepareProject(ctx: SystemCtx, password: string) {
  const ref = randomLetters()
  const [sealed, keys] = await Promise.all([sealSecrets(ctx, ref, password), newDefaultKeys(ctx, ref)])
  return { ref, sealed, keys }
}

type Chosen = Pick<
  typeof projects.$inferInsert,
  'organizationId' | 'parentRef' | 'name' | 'region' | 'instanceSize' | 'postgresVersion'
>

/** Inserts a project in status COMING_UP, with its API keys. */
export async function insertProject(
  { now }: SystemCtx,
  { tx }: Pick<Mutation, 'tx'>,
  { ref, sealed, keys }: NewProject,
  chosen: Chosen,
) {
  const values = { ...chosen, ...sealed, ref, status: 'COMING_UP' as const, createdAt: now() }
  const project = requireRow(await tx.insert(projects).values(values).returning())
  await insertKeys(tx, keys)
  return project
}
