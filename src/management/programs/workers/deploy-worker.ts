import { and, count, eq, isNull, sql } from 'drizzle-orm'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { functionSecrets, workers } from '../../../model/tables/index.ts'
import { requireRow } from '../../../platform/db/require-row.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { INSTALLATION_VARIABLES } from '../../../services/runtime/environment.ts'
import { type Mutation, mutate } from '../../kernel/mutate.ts'
import { toWorker, type WorkerRow } from './convert.ts'
import { requireLiving } from './require-project.ts'
import type { Deployment, Spelling } from './schema.ts'
import { refuseUpload, requireUpload } from './uploads.ts'
import { startWorkerTask } from './worker-tasks.ts'

const WORKERS_MAX = 100

interface Asked extends Deployment {
  name: string
  spelling: Spelling
}

export async function deployWorker(ctx: Ctx, project: ProjectAccess, asked: Asked) {
  const { ref, organizationId } = project
  const { name, spelling, spec, context_upload_id: uploadId } = asked
  await requireSecrets(ctx, ref, spec)
  if (uploadId) await requireUpload(ctx, ref, { name, id: uploadId })
  const worker = await mutate(ctx, async (mutation) => {
    await requireLiving(mutation.tx, ref)
    const row = await upsertWorker(ctx, mutation, { ref, name, spec })
    const built = await startWorkerTask(ctx, mutation, { workerId: row.id, kind: 'build', uploadId, spec })
    if (!built && !row.served) throw refuseUpload('is needed, as nothing was built yet')
    await mutation.trace({ action: 'worker.deploy', organizationId, projectRef: ref, detail: { name } })
    return row
  })
  return { data: await toWorker(ctx, project, worker, spelling) }
}

/** A misspelt name would otherwise start the worker without the secret. */
async function requireSecrets({ db }: Ctx, ref: string, { secrets_scope: scope }: Asked['spec']): Promise<void> {
  if (!Array.isArray(scope)) return
  const rows = await db
    .select({ name: functionSecrets.name })
    .from(functionSecrets)
    .where(eq(functionSecrets.projectRef, ref))
  const known = new Set<string>([...INSTALLATION_VARIABLES, ...rows.map(({ name }) => name)])
  const issues = scope.flatMap(({ secret_name: name }, index) =>
    known.has(name)
      ? []
      : [
          {
            field: `body.data.attributes.spec.secrets_scope.${index}.secret_name`,
            code: 'unknown',
            message: `the project has no secret ${name}`,
          },
        ],
  )
  if (issues.length > 0) throw new ApiError('bad_request.validation_failed', { issues })
}

interface Declared extends Pick<Asked, 'name' | 'spec'> {
  ref: string
}

async function upsertWorker({ now }: Ctx, { tx }: Mutation, { ref, name, spec }: Declared): Promise<WorkerRow> {
  const changed = { spec, buildState: 'building' as const, stateReason: null, updatedAt: now() }
  const worker = requireRow(
    await tx
      .insert(workers)
      .values({ projectRef: ref, name, createdAt: now(), ...changed })
      .onConflictDoUpdate({
        target: [workers.projectRef, workers.name],
        targetWhere: sql`deleted_at is null`,
        set: changed,
      })
      .returning(),
  )
  const [{ living } = { living: 0 }] = await tx
    .select({ living: count() })
    .from(workers)
    .where(and(eq(workers.projectRef, ref), isNull(workers.deletedAt)))
  if (living > WORKERS_MAX) throw new ApiError('unprocessable.too_many_workers', { detail: `at most ${WORKERS_MAX}` })
  return worker
}
