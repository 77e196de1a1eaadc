import { and, eq, inArray, isNull, or, type SQL, sql } from 'drizzle-orm'
import type { PgColumn } from 'drizzle-orm/pg-core'
import type { Caller } from '../actor.ts'
import type { Ctx } from '../ctx.ts'
import { type Role, roleAllows, rolesAllowing, strongestRole } from '../model/roles.ts'
import type { Scope } from '../model/scopes.ts'
import {
  BRANCH_COLUMNS,
  type BranchRow,
  branches,
  memberRoles,
  organizations,
  projects,
} from '../model/tables/index.ts'
import { prepareOnce } from '../platform/db/client.ts'
import { ApiError } from '../platform/http/error.ts'

export type ProjectAccess = typeof projects.$inferSelect & { organizationSlug: string; role: Role }
/** A branch with its own project. The default branch's project is the parent. */
export type BranchAccess = BranchRow & { project: ProjectAccess }
export type OrganizationAccess = typeof organizations.$inferSelect & {
  role: Role
  /** Refs of the only projects that the caller may see; undefined means all of them. */
  onlyProjects?: readonly string[]
}

interface RoleGrant {
  role: Role
  ref: string | null
}

/** The column with its table name, which Drizzle omits in a select from one table, even inside a subquery. */
const column = ({ table, name }: PgColumn): SQL => sql`${table}.${sql.identifier(name)}`

/** The caller's roles in an organization as one JSON array; null for an outsider. */
const rolesIn = (organizationId: PgColumn): SQL<RoleGrant[] | null> => sql<RoleGrant[] | null>`(
  select json_agg(json_build_object('role', ${column(memberRoles.role)}, 'ref', ${column(memberRoles.projectRef)}))
  from ${memberRoles}
  where ${column(memberRoles.organizationId)} = ${column(organizationId)}
    and ${column(memberRoles.userId)} = ${sql.placeholder('userId')})`

/** A token that is limited to one organization cannot reach any other. */
const isReachedByToken = (organizationId: PgColumn): SQL =>
  sql`coalesce(${sql.placeholder('onlyOrganization')}::uuid = ${organizationId}, true)`

const callerParameters = ({ userId, organizationId }: Caller) => ({ userId, onlyOrganization: organizationId ?? null })

const tokenFilter = (actor: Caller, organizationId: PgColumn) =>
  actor.organizationId ? eq(organizationId, actor.organizationId) : undefined

/** Filter over `projects` for lists across organizations: projects that the caller may see, without those of disabled organizations. */
export const visibleProjects = (actor: Caller): SQL | undefined =>
  and(
    isNull(projects.removedAt),
    tokenFilter(actor, projects.organizationId),
    // Makes Postgres start with the caller's few organizations.
    sql`${projects.organizationId} in (select ${column(memberRoles.organizationId)} from ${memberRoles}
      join ${organizations} on ${column(organizations.id)} = ${column(memberRoles.organizationId)}
        and ${column(organizations.disabledAt)} is null
      where ${column(memberRoles.userId)} = ${actor.userId})`,
    sql`exists (select from ${memberRoles} where ${memberRoles.organizationId} = ${projects.organizationId}
      and ${memberRoles.userId} = ${actor.userId}
      and (${memberRoles.projectRef} is null or ${memberRoles.projectRef} in (${projects.ref}, ${projects.parentRef})))`,
  )

/** Filter over `organizations`: those that the caller belongs to, without disabled ones. */
export const visibleOrganizations = (actor: Caller): SQL | undefined =>
  and(
    tokenFilter(actor, organizations.id),
    isNull(organizations.disabledAt),
    sql`exists (select from ${memberRoles} where ${memberRoles.organizationId} = ${organizations.id}
      and ${memberRoles.userId} = ${actor.userId})`,
  )

/** Filter over `organizations`: those in which the caller's organization-wide role grants the permission. */
export const organizationsAllowing = (actor: Caller, permission: Scope): SQL | undefined =>
  and(
    tokenFilter(actor, organizations.id),
    isNull(organizations.disabledAt),
    sql`exists (select from ${memberRoles} where ${memberRoles.organizationId} = ${organizations.id}
      and ${memberRoles.userId} = ${actor.userId} and ${memberRoles.projectRef} is null
      and ${inArray(memberRoles.role, rolesAllowing(permission))})`,
  )

const projectByRef = prepareOnce((db) =>
  db
    .select({
      project: projects,
      organizationSlug: organizations.slug,
      disabledAt: organizations.disabledAt,
      grants: rolesIn(projects.organizationId),
    })
    .from(projects)
    .innerJoin(organizations, eq(organizations.id, projects.organizationId))
    .where(
      and(
        eq(projects.ref, sql.placeholder('ref')),
        isNull(projects.removedAt),
        isReachedByToken(projects.organizationId),
      ),
    )
    .prepare('project_by_ref'),
)

/** Returns the project and the caller's role in it, in one round trip. 404 instead of 403, so that an outsider cannot learn that a ref exists. */
export async function findProject({ db, actor }: Ctx, ref: string): Promise<ProjectAccess> {
  const [row] = await projectByRef(db).execute({ ref, ...callerParameters(actor) })
  const project = row && accessOf(row)
  if (!project) throw new ApiError('not_found.project')
  return project
}

interface ProjectRow {
  project: typeof projects.$inferSelect
  organizationSlug: string
  disabledAt: Date | null
  grants: RoleGrant[] | null
}

/** Returns undefined if the caller has no role. A role in a project also applies to its branches. */
function accessOf({ project, organizationSlug, disabledAt, grants }: ProjectRow): ProjectAccess | undefined {
  const roles = (grants ?? []).filter(({ ref }) => ref === null || ref === project.ref || ref === project.parentRef)
  const role = strongestRole(roles.map(({ role }) => role))
  if (role) requireEnabled({ slug: organizationSlug, disabledAt })
  return role && { ...project, organizationSlug, role }
}

/** Call this for members only: to an outsider the organization does not exist. */
function requireEnabled({ slug, disabledAt }: Pick<typeof organizations.$inferSelect, 'slug' | 'disabledAt'>): void {
  if (disabledAt) throw new ApiError('forbidden.access_disabled', { detail: `the organization ${slug} is disabled` })
}

const branchByAnyId = prepareOnce((db) =>
  db
    .select({
      branch: BRANCH_COLUMNS,
      project: projects,
      organizationSlug: organizations.slug,
      disabledAt: organizations.disabledAt,
      grants: rolesIn(projects.organizationId),
    })
    .from(branches)
    .innerJoin(projects, eq(projects.ref, branches.projectRef))
    .innerJoin(organizations, eq(organizations.id, projects.organizationId))
    .where(
      and(
        or(eq(branches.id, sql.placeholder('id')), eq(branches.projectRef, sql.placeholder('ref'))),
        isNull(branches.removedAt),
        isReachedByToken(projects.organizationId),
      ),
    )
    .prepare('branch_by_any_id'),
)

const NO_ID = '00000000-0000-0000-0000-000000000000'

/** Finds a branch by the ref of its project or by its id (deprecated). 404 instead of 403, as for projects. */
export async function findBranch({ db, actor }: Ctx, idOrRef: string): Promise<BranchAccess> {
  const key = idOrRef.includes('-') ? { id: idOrRef, ref: '' } : { id: NO_ID, ref: idOrRef }
  const [row] = await branchByAnyId(db).execute({ ...key, ...callerParameters(actor) })
  const project = row && accessOf(row)
  if (!project) throw new ApiError('not_found.branch')
  return { ...row.branch, project }
}

const organizationBySlug = prepareOnce((db) =>
  db
    .select({ organization: organizations, grants: rolesIn(organizations.id) })
    .from(organizations)
    .where(and(eq(organizations.slug, sql.placeholder('slug')), isReachedByToken(organizations.id)))
    .prepare('organization_by_slug'),
)

/** A member with roles in single projects only is a read-only member of the organization and sees only those projects. */
export async function findOrganization({ db, actor }: Ctx, slug: string): Promise<OrganizationAccess> {
  const [row] = await organizationBySlug(db).execute({ slug, ...callerParameters(actor) })
  if (!row?.grants) throw new ApiError('not_found.organization')
  requireEnabled(row.organization)
  const organizationRole = strongestRole(row.grants.filter(({ ref }) => ref === null).map(({ role }) => role))
  if (organizationRole) return { ...row.organization, role: organizationRole }
  const onlyProjects = row.grants.flatMap(({ ref }) => ref ?? [])
  return { ...row.organization, role: 'read-only', onlyProjects }
}

/** A project cannot be changed once its removal has started. */
export function requireNotGoingDown({ status }: Pick<typeof projects.$inferSelect, 'status'>): void {
  if (status === 'GOING_DOWN') throw new ApiError('conflict.project_status', { detail: `its status is ${status}` })
}

export function requireTokenScope({ scopes }: Caller, needed: Scope): void {
  if (scopes.includes(needed)) return
  throw new ApiError('forbidden.permission_denied', { detail: `the access token lacks the scope ${needed}` })
}

/** Secrets need both the caller's role and the scope of the token, so that other callers get the rest of a reply. */
export const maySeeSecrets = ({ scopes }: Caller, role: Role): boolean =>
  roleAllows(role, 'secrets:read') && scopes.includes('secrets:read')

/** The caller's role must grant the scope that the endpoint requires of the token. */
export function requirePermission(role: Role, permission: Scope): void {
  if (roleAllows(role, permission)) return
  throw new ApiError('forbidden.permission_denied', { detail: `the role ${role} does not allow ${permission}` })
}
