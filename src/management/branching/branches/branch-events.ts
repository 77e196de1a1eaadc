import type { ProjectAccess } from '../../../access/access.ts'
import type { BranchRow } from '../../../model/tables/index.ts'
import type { Mutation } from '../../kernel/mutate.ts'
import { toEventFields } from './convert.ts'

type BranchEvent = 'v1.project.branch.created' | 'v1.project.branch.updated' | 'v1.project.branch.removed'

interface EventOptions {
  actor?: { userId: string | undefined }
  idempotencyKey?: string
  reason?: string | undefined
}

/** Publishes an event of a branch in its parent project. */
export const publishBranchEvent = (
  { publish }: Mutation,
  { organizationId: id, organizationSlug: slug }: Pick<ProjectAccess, 'organizationId' | 'organizationSlug'>,
  branch: BranchRow,
  type: BranchEvent,
  { actor, ...fields }: EventOptions = {},
) =>
  publish(
    {
      type,
      organization: { id, slug },
      projectRef: branch.parentRef,
      fields: toEventFields(branch),
      branchId: branch.id,
      ...fields,
    },
    actor,
  )
