import { and, eq, inArray, isNull, or, type SQL, sql } from 'drizzle-orm'
import type { PgColumn } from 'drizzle-orm/pg-core'
import type { Caller } from '../actor.ts'
import type { Ctx } from '../ctx.ts'
import { type Role, roleAllows, rolesAllowing, strongest } from '../model/roles.ts'
import type { Scope } from '../model/scopes.ts'
import { branches, memberRoles, organizations, projects } from '../model/tables/index.ts'
import { prepared } from '../platform/db/client.ts'
import { ApiError } from '../platform/http/error.ts'

export type ProjectAccess = typeof projects.$inferSelect & { organizationSlug: string; role: Role }
/** A branch with its own project; the default branch's is the parent. */
export type BranchAccess = typeof branches.$inferSelect & { project: ProjectAccess }
export type OrganizationAccess = typeof organizations.$inferSelect & {
  role: Role
  /** The projects that the caller may see; undefined means all of them. */
  onlyProjects?: readonly string[]
}

interface Held {
  role: Role
  ref: string | null
}

/** Qualified, as a select from one table drops the table's name, also inside a subquery. */
const column = ({ table, name }: PgColumn): SQL => sql`${table}.${sql.identifier(name)}`

/** The caller's roles in an organization as one JSON array; null for an outsider. */
const rolesIn = (organizationId: PgColumn): SQL<Held[] | null> => sql<Held[] | null>`(
  select json_agg(json_build_object('role', ${column(memberRoles.role)}, 'ref', ${column(memberRoles.projectRef)}))
  from ${memberRoles}
  where ${column(memberRoles.organizationId)} = ${column(organizationId)}
    and ${column(memberRoles.userId)} = ${sql.placeholder('userId')})`

/** A token that is bound to one organization reaches no other. */
const withinReach = (organizationId: PgColumn): SQL =>
  sql`coalesce(${sql.placeholder('onlyOrganization')}::uuid = ${organizationId}, true)`

const callerOf = ({ userId, organizationId }: Caller) => ({ userId, onlyOrganization: organizationId ?? null })

const reachable = (actor: Caller, organizationId: PgColumn) =>
  actor.organizationId ? eq(organizationId, actor.organizationId) : undefined

/** Which projects the caller may see, without those of disabled organizations, as a filter over `projects` for lists across organizations. */
export const visibleProjects = (actor: Caller): SQL | undefined =>
  and(
    isNull(projects.removedAt),
    reachable(actor, projects.organizationId),
    // Leads Postgres from the caller's few organizations to their projects.
    sql`${projects.organizationId} in (select ${column(memberRoles.organizationId)} from ${memberRoles}
      join ${organizations} on ${column(organizations.id)} = ${column(memberRoles.organizationId)}
        and ${column(organizations.disabledAt)} is null
      where ${column(memberRoles.userId)} = ${actor.userId})`,
    sql`exists (select from ${memberRoles} where ${memberRoles.organizationId} = ${projects.organizationId}
      and ${memberRoles.userId} = ${actor.userId}
      and (${memberRoles.projectRef} is null or ${memberRoles.projectRef} in (${projects.ref}, ${projects.parentRef})))`,
  )

/** Which organizations the caller belongs to, without disabled ones, as a filter over `organizations`. */
export const visibleOrganizations = (actor: Caller): SQL | undefined =>
  and(
    reachable(actor, organizations.id),
    isNull(organizations.disabledAt),
    sql`exists (select from ${memberRoles} where ${memberRoles.organizationId} = ${organizations.id}
      and ${memberRoles.userId} = ${actor.userId})`,
  )

/** Those of them in which his role in the whole organization allows it. */
export const organizationsAllowing = (actor: Caller, permission: Scope): SQL | undefined =>
  and(
    reachable(actor, organizations.id),
    isNull(organizations.disabledAt),
    sql`exists (select from ${memberRoles} where ${memberRoles.organizationId} = ${organizations.id}
      and ${memberRoles.userId} = ${actor.userId} and ${memberRoles.projectRef} is null
      and ${inArray(memberRoles.role, rolesAllowing(permission))})`,
  )

const projectByRef = prepared((db) =>
  db
    .select({
      project: projects,
      organizationSlug: organizations.slug,
      disabledAt: organizations.disabledAt,
      held: rolesIn(projects.organizationId),
    })
    .from(projects)
    .innerJoin(organizations, eq(organizations.id, projects.organizationId))
    .where(
      and(eq(projects.ref, sql.placeholder('ref')), isNull(projects.removedAt), withinReach(projects.organizationId)),
    )
    .prepare('project_by_ref'),
)

/** The project and the caller's role in it, in one round trip. 404 and not 403: an outsider must not learn of a ref. */
export async function findProject({ db, actor }: Ctx, ref: string): Promise<ProjectAccess> {
  const [row] = await projectByRef(db).execute({ ref, ...callerOf(actor) })
  const project = row && accessOf(row)
  if (!project) throw new ApiError('not_found.project')
  return project
}

interface Found {
  project: typeof projects.$inferSelect
  organizationSlug: string
  disabledAt: Date | null
  held: Held[] | null
}

/** Undefined without a role. Who may do something in a project may do it in its branches. */
function accessOf({ project, organizationSlug, disabledAt, held }: Found): ProjectAccess | undefined {
  const roles = (held ?? []).filter(({ ref }) => ref === null || ref === project.ref || ref === project.parentRef)
  const role = strongest(roles.map((held) => held.role))
  if (role) requireEnabled({ slug: organizationSlug, disabledAt })
  return role && { ...project, organizationSlug, role }
}

/** For members alone: to an outsider the organization does not exist. */
function requireEnabled({ slug, disabledAt }: Pick<typeof organizations.$inferSelect, 'slug' | 'disabledAt'>): void {
  if (disabledAt) throw new ApiError('forbidden.access_disabled', { detail: `the organization ${slug} is disabled` })
}

const branchByAnyId = prepared((db) =>
  db
    .select({
      branch: branches,
      project: projects,
      organizationSlug: organizations.slug,
      disabledAt: organizations.disabledAt,
      held: rolesIn(projects.organizationId),
    })
    .from(branches)
    .innerJoin(projects, eq(projects.ref, branches.projectRef))
    .innerJoin(organizations, eq(organizations.id, projects.organizationId))
    .where(
      and(
        or(eq(branches.id, sql.placeholder('id')), eq(branches.projectRef, sql.placeholder('ref'))),
        isNull(branches.removedAt),
        withinReach(projects.organizationId),
      ),
    )
    .prepare('branch_by_any_id'),
)

const NO_ID = '00000000-0000-0000-0000-000000000000'

/** By the ref of its project or, deprecated, its own id. 404 and not 403, as for projects. */
export async function findBranch({ db, actor }: Ctx, idOrRef: string): Promise<BranchAccess> {
  const key = idOrRef.includes('-') ? { id: idOrRef, ref: '' } : { id: NO_ID, ref: idOrRef }
  const [row] = await branchByAnyId(db).execute({ ...key, ...callerOf(actor) })
  const project = row && accessOf(row)
  if (!project) throw new ApiError('not_found.branch')
  return { ...row.branch, project }
}

const organizationBySlug = prepared((db) =>
  db
    .select({ organization: organizations, held: rolesIn(organizations.id) })
    .from(organizations)
    .where(and(eq(organizations.slug, sql.placeholder('slug')), withinReach(organizations.id)))
    .prepare('organization_by_slug'),
)

/** A member of single projects alone sees the organization as a read-only member, and of its projects only his own. */
export async function findOrganization({ db, actor }: Ctx, slug: string): Promise<OrganizationAccess> {
  const [row] = await organizationBySlug(db).execute({ slug, ...callerOf(actor) })
  if (!row?.held) throw new ApiError('not_found.organization')
  requireEnabled(row.organization)
  const everywhere = strongest(row.held.filter((held) => held.ref === null).map((held) => held.role))
  if (everywhere) return { ...row.organization, role: everywhere }
  const onlyProjects = row.held.flatMap((held) => held.ref ?? [])
  return { ...row.organization, role: 'read-only', onlyProjects }
}

/** Nothing of a project is changed once its removal has begun. */
export function requireStaying({ status }: Pick<typeof projects.$inferSelect, 'status'>): void {
  if (status === 'GOING_DOWN') throw new ApiError('conflict.project_status', { detail: `its status is ${status}` })
}

/** The scope of an endpoint is also what the caller's role must allow. */
export function requirePermission(role: Role, permission: Scope): void {
  if (roleAllows(role, permission)) return
  throw new ApiError('forbidden.permission_denied', { detail: `the role ${role} does not allow ${permission}` })
}
