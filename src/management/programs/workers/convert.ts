import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import type { workers } from '../../../model/tables/index.ts'
import { countInstances } from '../../../services/workers/instance-control.ts'
import { SPELLINGS, type Spelling, type WorkerAttributes } from './schema.ts'

export type WorkerRow = typeof workers.$inferSelect

export async function toWorker(ctx: Ctx, project: ProjectAccess, worker: WorkerRow, spelling: Spelling) {
  const { name, spec, buildState, stateReason, served, deletedAt } = worker
  const attributes: WorkerAttributes = {
    spec,
    build_state: buildState,
    secret_generation: String(project.secretsGeneration),
    ...(stateReason !== null && { state_reason: stateReason }),
    ...(served && { image_version: served.image }),
    ...(deletedAt && { deleting: true }),
    ...(await countInstances(ctx, worker, project)),
  }
  return { type: SPELLINGS[spelling].type, id: name, attributes }
}
