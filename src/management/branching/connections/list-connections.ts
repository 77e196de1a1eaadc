import { and, asc, desc, eq, gt, inArray, isNull, lt } from 'drizzle-orm'
import type * as z from 'zod'
import type { OrganizationAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { gitConnections, projects, users } from '../../../model/tables/index.ts'
import { cutPage } from '../../../platform/http/pagination.ts'
import type { ConnectionList, ConnectionListQuery } from './schema.ts'

type ListedConnection = z.input<typeof ConnectionList>['data'][number]

export async function listConnections(
  { db }: Ctx,
  organization: OrganizationAccess,
  query: z.output<typeof ConnectionListQuery>,
) {
  const { 'page[size]': size, 'page[after]': after, 'page[before]': before, 'filter[project_ref]': ref } = query
  const { projectRef } = gitConnections
  const { onlyProjects } = organization
  const rows = await db
    .select({ connection: gitConnections, project: { id: projects.id, name: projects.name }, user: users })
    .from(gitConnections)
    .innerJoin(projects, and(eq(projects.ref, projectRef), isNull(projects.removedAt)))
    .leftJoin(users, eq(users.id, gitConnections.userId))
    .where(
      and(
        eq(gitConnections.organizationId, organization.id),
        after === undefined ? undefined : gt(projectRef, after),
        before === undefined ? undefined : lt(projectRef, before),
        ref === undefined ? undefined : eq(projectRef, ref),
        onlyProjects && inArray(projectRef, [...onlyProjects]),
      ),
    )
    .orderBy(before ? desc(projectRef) : asc(projectRef))
    .limit(size + 1)
  const path = `/v2/organizations/${organization.slug}/integrations/github/connections`
  const { page, links } = cutPage(path, query, rows, ({ connection }) => connection.projectRef)
  return { data: page.map(toConnection), links }
}

interface Row {
  connection: typeof gitConnections.$inferSelect
  project: { id: number; name: string }
  user: typeof users.$inferSelect | null
}

const toConnection = ({ connection, project, user }: Row): ListedConnection => ({
  type: 'github_connection',
  id: connection.id,
  attributes: {
    inserted_at: connection.createdAt.toISOString(),
    updated_at: connection.updatedAt.toISOString(),
    installation_id: connection.installationId,
    workdir: connection.workdir,
    supabase_changes_only: connection.changesOnly,
    branch_limit: connection.branchLimit,
    new_branch_per_pr: connection.newBranchPerPr,
    project: { id: project.id, ref: connection.projectRef, name: project.name },
    repository: { id: connection.repositoryId, name: connection.repositoryName },
    user: user && { id: user.number, username: user.username, primary_email: user.primaryEmail },
  },
})
