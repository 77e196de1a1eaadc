import { and, eq, isNull, type SQL } from 'drizzle-orm'
import type { OrganizationAccess, ProjectAccess } from '../../auth/access.ts'
import { type Role, roleAllows } from '../../auth/roles.ts'
import { webhookEndpoints } from '../../db/schema/index.ts'

/** Whose endpoints a request is about: a project's or an organization's own. */
export interface Owner {
  organization: { id: string; slug: string }
  projectRef: string | null
  /** Custom headers often hold credentials of the receiver: who may not read secrets is not shown them. */
  showsHeaders: boolean
  /** Before /webhooks, for links. */
  path: string
}

const showsHeaders = (role: Role) => roleAllows(role, 'secrets:read')

export const ofProject = ({ ref, organizationId: id, organizationSlug: slug, role }: ProjectAccess): Owner => ({
  organization: { id, slug },
  projectRef: ref,
  showsHeaders: showsHeaders(role),
  path: `/v2/projects/${ref}`,
})

export const ofOrganization = ({ id, slug, role }: OrganizationAccess): Owner => ({
  organization: { id, slug },
  projectRef: null,
  showsHeaders: showsHeaders(role),
  path: `/v2/organizations/${slug}`,
})

/** The filter that keeps every query within what the path names. */
export const ownedBy = ({ organization, projectRef }: Owner): SQL | undefined =>
  and(
    eq(webhookEndpoints.organizationId, organization.id),
    projectRef === null ? isNull(webhookEndpoints.projectRef) : eq(webhookEndpoints.projectRef, projectRef),
  )
