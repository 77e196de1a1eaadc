import { type SQL, sql } from 'drizzle-orm'
import type * as z from 'zod'
import type { OrganizationAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { ROLE_NAMES, ROLES, type Role } from '../../../model/roles.ts'
import { memberRoles, projects, users } from '../../../model/tables/index.ts'
import { rowsOf } from '../../../platform/db/client.ts'
import { cutPage } from '../../../platform/http/pagination.ts'
import type { MemberList, MemberListQuery } from './schema.ts'

type ListedMember = z.input<typeof MemberList>['data'][number]

interface HeldRole {
  role: Role
  /** Null for the whole organization. */
  project: { ref: string; name: string } | null
}

interface Row {
  id: string
  username: string
  primary_email: string
  mfa_enabled: boolean
  avatar_url: string | null
  heldRoles: HeldRole[] | null
}

export async function listMembers(
  { db }: Ctx,
  organization: OrganizationAccess,
  query: z.output<typeof MemberListQuery>,
) {
  const { 'page[size]': size, 'page[after]': after, 'page[before]': before, ...filters } = query
  const backwards = before !== undefined
  const cursor = after ?? before
  const order = sql.raw(backwards ? 'desc' : 'asc')
  const beyond = cursor ? sql`and m.user_id ${sql.raw(backwards ? '<' : '>')} ${cursor}::uuid` : sql``
  const rows = await rowsOf<Row>(
    db,
    sql`with page as (
        select distinct m.user_id as id from ${memberRoles} m
        where m.organization_id = ${organization.id} ${beyond} ${matching(filters)}
        order by m.user_id ${order} limit ${size + 1}
      )
      select u.id, u.username, u.primary_email, u.mfa_enabled, u.avatar_url, ${selectHeldRoles(organization)} as "heldRoles"
      from page join ${users} u using (id) order by u.id ${order}`,
  )
  const { page, links } = cutPage(`/v2/organizations/${organization.slug}/members`, query, rows, ({ id }) => id)
  return { data: page.map(toMember), links }
}

type Filters = Pick<z.output<typeof MemberListQuery>, 'filter[username]' | 'filter[primary_email]'>

/** Filters by subquery, so that the indexes of users are used: an organization may have many members. */
function matching({ 'filter[username]': username, 'filter[primary_email]': email }: Filters): SQL {
  const byName = username ? sql`and m.user_id in (select id from ${users} where username = ${username})` : sql``
  const byEmail =
    email === undefined ? sql`` : sql`and m.user_id in (select id from ${users} where lower(primary_email) = ${email})`
  return sql`${byName} ${byEmail}`
}

/** Selects the roles of the user `u`, without removed projects and projects that the caller may not see. */
function selectHeldRoles({ id, onlyProjects }: OrganizationAccess): SQL {
  const visible = onlyProjects
    ? sql`and (p.ref = any(${sql.param(onlyProjects)}::text[]) or p.parent_ref = any(${sql.param(onlyProjects)}::text[]))`
    : sql``
  return sql`(
    select json_agg(json_build_object('role', m.role, 'project',
      case when p.ref is not null then json_build_object('ref', p.ref, 'name', p.name) end) order by p.name, p.ref)
    from ${memberRoles} m
    left join ${projects} p on p.ref = m.project_ref and p.organization_id = m.organization_id and p.removed_at is null ${visible}
    where m.organization_id = ${id} and m.user_id = u.id and (m.project_ref is null or p.ref is not null))`
}

const toMember = ({ id, username, primary_email, mfa_enabled, avatar_url, heldRoles }: Row): ListedMember => ({
  type: 'organization_member',
  id,
  attributes: {
    username,
    primary_email,
    mfa_enabled,
    // Users of the management API only sign in with tokens.
    is_sso_user: false,
    avatar_url,
    roles: ROLES.flatMap((role) => toRoles(role, heldRoles ?? [])),
  },
})

/** Converts a role; it is listed in both scopes if the member has it in the organization and in a project. */
function toRoles(name: Role, heldRoles: readonly HeldRole[]): ListedMember['attributes']['roles'] {
  const withName = heldRoles.filter(({ role }) => role === name)
  const named = withName.flatMap(({ project }) => project ?? [])
  const everywhere = withName.some(({ project }) => project === null)
  return [...(everywhere ? [toMemberRole(name, null)] : []), ...(named.length > 0 ? [toMemberRole(name, named)] : [])]
}

/** Converts a role; `named` is null for the whole organization. */
export const toMemberRole = (role: Role, named: readonly { ref: string; name: string }[] | null) => ({
  name: ROLE_NAMES[role],
  scope: named ? ('project' as const) : ('organization' as const),
  projects: [...(named ?? [])],
})

export const listRoles = () => ({
  data: ROLES.map((role) => ({ type: 'organization_role' as const, id: role, attributes: { name: ROLE_NAMES[role] } })),
})
