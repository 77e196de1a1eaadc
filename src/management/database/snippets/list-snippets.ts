import { asc, desc, inArray, type SQL, sql } from 'drizzle-orm'
import type * as z from 'zod'
import { findProject, requirePermission, visibleProjects } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { memberRoles, projects, snippets } from '../../../model/tables/index.ts'
import { cursorOf, type Place, placeOf } from '../../../platform/http/pagination.ts'
import { selectSnippets, toListedSnippet } from './read-snippet.ts'
import type { SnippetListQuery } from './schema.ts'

type Query = z.output<typeof SnippetListQuery>
type Sort = Query['sort_by']

export async function listSnippets(ctx: Ctx, query: Query) {
  const { project_ref: ref, limit, sort_by: sort, sort_order: order = sort === 'name' ? 'asc' : 'desc' } = query
  if (ref) requirePermission((await findProject(ctx, ref)).role, 'database:read')
  const place = query.cursor === undefined ? undefined : placeOf('cursor', sort, query.cursor)
  const direction = order === 'asc' ? asc : desc
  const page: Page = {
    column: sql.identifier(sort),
    order: sql.raw(order),
    afterCursor: afterCursor(place, sort, order),
    size: limit + 1,
  }
  const rows = await selectSnippets(ctx, {})
    .where(inArray(snippets.id, ref ? idsInProject(ctx, ref, page) : idsEverywhere(ctx, page)))
    .orderBy(direction(sort === 'name' ? snippets.name : snippets.insertedAt), direction(snippets.id))
  const last = rows.length > limit ? rows[limit - 1] : undefined
  return { data: rows.slice(0, limit).map(toListedSnippet), ...(last && { cursor: cursorOf(sort, last) }) }
}

interface Page {
  column: SQL | ReturnType<typeof sql.identifier>
  order: SQL
  afterCursor: SQL
  size: number
}

/** Compares the columns as a row, so that the index scan starts at the cursor. */
function afterCursor(place: Place | undefined, sort: Sort, order: 'asc' | 'desc'): SQL {
  if (!place) return sql`true`
  const key = sort === 'name' ? sql`${place.key}` : sql`${place.key}::timestamptz`
  return sql`(s.${sql.identifier(sort)}, s.id) ${sql.raw(order === 'asc' ? '>' : '<')} (${key}, ${place.id}::uuid)`
}

/** Selects one page of the snippets of an audience, in the order of an index. */
const pageOf = (condition: SQL, { column, order, afterCursor, size }: Page): SQL =>
  sql`(select s.id, s.${column} as key from ${snippets} s where ${condition} and ${afterCursor}
    order by s.${column} ${order}, s.id ${order} limit ${size})`

const merge = (pages: SQL[], { order, size }: Page): SQL =>
  sql`(select id from (${sql.join(pages, sql` union all `)}) page order by key ${order}, id ${order} limit ${size})`

function idsInProject({ actor }: Ctx, ref: string, page: Page): SQL {
  const shared = pageOf(sql`s.project_ref = ${ref} and s.visibility = a.visibility`, page)
  const own = pageOf(sql`s.owner_id = ${actor.userId} and s.visibility = 'user' and s.project_ref = ${ref}`, page)
  return merge(
    [sql`select p.* from (values ('project'), ('org'), ('public')) a (visibility), lateral ${shared} p`, own],
    page,
  )
}

/** Selects snippets of the member's organizations, and of the projects in which they have a role. */
function idsEverywhere({ actor }: Ctx, page: Page): SQL {
  const { userId, organizationId } = actor
  const organizations = sql`(select organization_id as id, bool_or(project_ref is null) as everywhere from ${memberRoles}
    where user_id = ${userId} and organization_id not in (select id from organizations where disabled_at is not null)
      and coalesce(${organizationId ?? null}::uuid = organization_id, true) group by organization_id)`
  const ofOrganization = pageOf(sql`s.organization_id = o.id and s.visibility = a.visibility`, page)
  const ofProject = pageOf(sql`s.project_ref = ${projects.ref} and s.visibility = 'project'`, page)
  // `offset 0` keeps this check per row: as a join, the planner would start with the projects and read all their snippets.
  const own = sql`s.owner_id = ${userId} and s.visibility = 'user'
    and exists (select from ${projects} where ${projects.ref} = s.project_ref and ${visibleProjects(actor)} offset 0)`
  return merge(
    [
      sql`select p.* from ${organizations} o join (values ('project'), ('org'), ('public')) a (visibility)
        on o.everywhere or a.visibility <> 'project', lateral ${ofOrganization} p`,
      sql`select p.* from ${organizations} o join ${projects} on ${projects.organizationId} = o.id and not o.everywhere
        and ${visibleProjects(actor)}, lateral ${ofProject} p`,
      pageOf(own, page),
    ],
    page,
  )
}
