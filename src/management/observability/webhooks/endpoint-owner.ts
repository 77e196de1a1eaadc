import { and, eq, isNull, type SQL } from 'drizzle-orm'
import { maySeeSecrets, type OrganizationAccess, type ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { webhookEndpoints } from '../../../model/tables/index.ts'

/** The project or organization whose endpoints a request is about. */
export interface Owner {
  organization: { id: string; slug: string }
  projectRef: string | null
  /** The only projects of the organization that the caller sees; undefined for all. */
  onlyProjects?: readonly string[]
  /** Whether the caller may read secrets: custom headers often contain credentials of the receiver. */
  showsHeaders: boolean
  /** The path before `/webhooks`, for links. */
  path: string
}

const ofProject = (ctx: Ctx, { ref, organizationId: id, organizationSlug: slug, role }: ProjectAccess): Owner => ({
  organization: { id, slug },
  projectRef: ref,
  showsHeaders: maySeeSecrets(ctx.actor, role),
  path: `/v2/projects/${ref}`,
})

const ofOrganization = (ctx: Ctx, { id, slug, role, onlyProjects }: OrganizationAccess): Owner => ({
  organization: { id, slug },
  projectRef: null,
  showsHeaders: maySeeSecrets(ctx.actor, role),
  path: `/v2/organizations/${slug}`,
  ...(onlyProjects && { onlyProjects }),
})

interface OwnerRequest {
  ctx: Ctx
  /** Undefined if the path names an organization. */
  project?: ProjectAccess
  organization: OrganizationAccess
}

export const ownerOf = ({ ctx, project, organization }: OwnerRequest): Owner =>
  project ? ofProject(ctx, project) : ofOrganization(ctx, organization)

/** Restricts a query to the endpoints of the owner. */
export const ownedBy = ({ organization, projectRef }: Owner): SQL | undefined =>
  and(
    eq(webhookEndpoints.organizationId, organization.id),
    isNull(webhookEndpoints.branchId),
    projectRef === null ? isNull(webhookEndpoints.projectRef) : eq(webhookEndpoints.projectRef, projectRef),
  )

/** Returns the owner in the format of the audit log. */
export const subjectOf = ({ organization, projectRef }: Owner) => ({
  organizationId: organization.id,
  ...(projectRef !== null && { projectRef }),
})
