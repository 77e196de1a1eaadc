import { and, eq, isNull, type SQL } from 'drizzle-orm'
import type { OrganizationAccess, ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { type Role, roleAllows } from '../../../model/roles.ts'
import { webhookEndpoints } from '../../../model/tables/index.ts'

/** Whose endpoints a request is about: a project's or an organization's own. */
export interface Owner {
  organization: { id: string; slug: string }
  projectRef: string | null
  /** Of the organization's projects the caller sees these alone. */
  onlyProjects?: readonly string[]
  /** Custom headers often hold credentials of the receiver: who may not read secrets is not shown them. */
  showsHeaders: boolean
  /** Before /webhooks, for links. */
  path: string
}

const showsHeaders = ({ actor }: Ctx, role: Role) =>
  roleAllows(role, 'secrets:read') && actor.scopes.includes('secrets:read')

export const ofProject = (
  ctx: Ctx,
  { ref, organizationId: id, organizationSlug: slug, role }: ProjectAccess,
): Owner => ({
  organization: { id, slug },
  projectRef: ref,
  showsHeaders: showsHeaders(ctx, role),
  path: `/v2/projects/${ref}`,
})

export const ofOrganization = (ctx: Ctx, { id, slug, role, onlyProjects }: OrganizationAccess): Owner => ({
  organization: { id, slug },
  projectRef: null,
  showsHeaders: showsHeaders(ctx, role),
  path: `/v2/organizations/${slug}`,
  ...(onlyProjects && { onlyProjects }),
})

/** The filter that keeps every query within what the path names. */
export const ownedBy = ({ organization, projectRef }: Owner): SQL | undefined =>
  and(
    eq(webhookEndpoints.organizationId, organization.id),
    isNull(webhookEndpoints.branchId),
    projectRef === null ? isNull(webhookEndpoints.projectRef) : eq(webhookEndpoints.projectRef, projectRef),
  )

/** The owner as the audit log names it. */
export const subjectOf = ({ organization, projectRef }: Owner) => ({
  organizationId: organization.id,
  ...(projectRef !== null && { projectRef }),
})
