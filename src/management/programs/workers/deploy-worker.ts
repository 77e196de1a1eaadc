import { and, eq, isNull, sql } from 'drizzle-orm'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { functionSecrets, workers } from '../../../model/tables/index.ts'
import { requireRow } from '../../../platform/db/require-row.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { INSTALLATION_VARIABLES } from '../../../services/runtime/environment.ts'
import { changeProject } from '../../kernel/change-project.ts'
import type { Mutation } from '../../kernel/mutate.ts'
import { toWorker, type WorkerRow } from './convert.ts'
import type { Deployment, Spelling } from './schema.ts'
import { invalidUpload, requireUpload } from './uploads.ts'
import { startWorkerTask } from './worker-tasks.ts'

const WORKERS_MAX = 100

interface Request extends Deployment {
  name: string
  spelling: Spelling
}

export async function deployWorker(ctx: Ctx, project: ProjectAccess, request: Request) {
  const { ref } = project
  const { name, spelling, spec, context_upload_id: uploadId } = request
  await requireSecrets(ctx, ref, spec)
  if (uploadId) await requireUpload(ctx, ref, { name, id: uploadId })
  const worker = await changeProject(ctx, project, async (mutation) => {
    const row = await upsertWorker(ctx, mutation, { ref, name, spec })
    const startedUpload = await startWorkerTask(ctx, mutation, { workerId: row.id, kind: 'build', uploadId, spec })
    if (!startedUpload && !row.served) throw invalidUpload('is required: the worker has no earlier build')
    await mutation.record('worker.deploy', { name })
    return row
  })
  return { data: await toWorker(ctx, project, worker, spelling) }
}

/** Requires that all secrets exist: a misspelled name would start the worker without its secret. */
async function requireSecrets({ db }: Ctx, ref: string, { secrets_scope: scope }: Request['spec']): Promise<void> {
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
            message: `must be the name of a secret of the project: there is no secret ${name}`,
          },
        ],
  )
  if (issues.length > 0) throw new ApiError('bad_request.validation_failed', { issues })
}

interface WorkerInput extends Pick<Request, 'name' | 'spec'> {
  ref: string
}

async function upsertWorker({ now }: Ctx, { tx }: Mutation, { ref, name, spec }: WorkerInput): Promise<WorkerRow> {
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
  if ((await tx.$count(workers, and(eq(workers.projectRef, ref), isNull(workers.deletedAt)))) > WORKERS_MAX)
    throw new ApiError('unprocessable.too_many_workers', { detail: `a project can have at most ${WORKERS_MAX}` })
  return worker
}
