import type { ProjectAccess } from '../../../access/access.ts'
import type { Mutation } from '../../kernel/mutate.ts'
import { type BranchRow, toEventFields } from './convert.ts'

export const subject = ({ organizationId, ref }: Pick<ProjectAccess, 'organizationId' | 'ref'>) => ({
  organizationId,
  projectRef: ref,
})

type Told = 'v1.project.branch.created' | 'v1.project.branch.updated' | 'v1.project.branch.removed'

interface Telling {
  actor?: { userId: string | undefined }
  idempotencyKey?: string
  reason?: string | undefined
}

/** Events of branches are the parent's. */
export const tell = (
  { publish }: Mutation,
  { organizationId: id, organizationSlug: slug }: Pick<ProjectAccess, 'organizationId' | 'organizationSlug'>,
  branch: BranchRow,
  type: Told,
  { actor, ...once }: Telling = {},
) =>
  publish(
    {
      type,
      organization: { id, slug },
      projectRef: branch.parentRef,
      fields: toEventFields(branch),
      branchId: branch.id,
      ...once,
    },
    actor,
  )
