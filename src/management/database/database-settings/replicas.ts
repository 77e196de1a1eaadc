import { and, eq } from 'drizzle-orm'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { failReplica } from '../../../engine/driver-states.ts'
import type { ProjectEngine } from '../../../engine/engine.ts'
import { privateLinkAssociations, type RegionCode, type TaskKind } from '../../../model/tables/index.ts'
import { randomLetters } from '../../../platform/http/common-values.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { invalidField } from '../../kernel/invalid-field.ts'
import { mutate } from '../../kernel/mutate.ts'
import { requireStatus } from '../../projects/projects/status.ts'
import { type Jobs, type Step, startTask } from '../../projects/projects/tasks.ts'
import { endAssociations } from '../private-link/end-associations.ts'

/** Starts a task that creates a replica, which is listed among the project's databases at once. */
export async function setUpReplica(ctx: Ctx, project: ProjectAccess, region: RegionCode): Promise<void> {
  requireReplicas(ctx.engine)
  if (region !== project.region) {
    const message = `must be ${project.region}, the region of the project, for the driver ${ctx.engine.name}`
    throw invalidField('body.read_replica_region', message, 'refused')
  }
  await start(ctx, project, 'add_replica', `${project.ref}-rr-${region}-${randomLetters(5)}`)
}

export async function removeReplica(ctx: Ctx, project: ProjectAccess, identifier: string): Promise<void> {
  const exists = requireReplicas(ctx.engine)
    .list(project)
    .some((replica) => replica.identifier === identifier)
  if (!exists) throw new ApiError('not_found.read_replica')
  await start(ctx, project, 'remove_replica', identifier)
}

function requireReplicas({ name, replicas }: ProjectEngine) {
  if (replicas) return replicas
  throw new ApiError('bad_request.driver', { detail: `the driver ${name} does not support read replicas` })
}

async function start(ctx: Ctx, project: ProjectAccess, kind: TaskKind, replica: string): Promise<void> {
  const { ref } = project
  await mutate(ctx, async (mutation) => {
    await requireStatus(mutation, ref)
    await startTask(ctx, mutation, { ref, kind, input: { replica } })
    await mutation.trace({ project, action: `project.${kind}`, detail: { replica } })
  })
}

const add: Step = {
  name: 'add_replica',
  run: ({ engine }, { task: { projectRef, input } }, fence) =>
    requireReplicas(engine).add(projectRef, input.replica ?? '', fence),
}
const remove: Step = {
  name: 'remove_replica',
  run: ({ engine }, { task: { projectRef, input } }, fence) =>
    requireReplicas(engine).remove(projectRef, input.replica ?? '', fence),
}

/** These tasks leave the status of the project unchanged. */
export const replicaJobs = {
  add_replica: {
    steps: [add],
    done: {},
    failed: () => ({}),
    async ended({ tx }, { state, task: { projectRef, input } }) {
      if (state === 'failed') await failReplica(tx, projectRef, input.replica ?? '')
    },
  },
  remove_replica: {
    steps: [remove],
    done: {},
    failed: () => ({}),
    async ended(mutation, { state, task, at }) {
      const ofReplica = and(
        eq(privateLinkAssociations.projectRef, task.projectRef),
        eq(privateLinkAssociations.databaseIdentifier, task.input.replica ?? ''),
      )
      if (state === 'done') await endAssociations(mutation, ofReplica, at)
    },
  },
} satisfies Partial<Jobs>
