import { and, asc, desc, eq, ilike, inArray, isNull, or, type SQL, sql } from 'drizzle-orm'
import type * as z from 'zod'
import type { OrganizationAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { projectSettings, projects } from '../../../model/tables/index.ts'
import { containsPattern } from '../../../platform/db/like-pattern.ts'
import { cutPage, decodeCursor, encodeCursor, type Position } from '../../../platform/http/pagination.ts'
import { toPageItem, toProjectV2 } from './convert.ts'
import type { ProjectListQueryV2, ProjectPageQuery } from './schema.ts'

const ORDER = {
  // Branches of different projects may have the same name.
  name_asc: [asc(projects.name), asc(projects.ref)],
  name_desc: [desc(projects.name), desc(projects.ref)],
  created_asc: [asc(projects.createdAt), asc(projects.ref)],
  created_desc: [desc(projects.createdAt), desc(projects.ref)],
} as const

const LISTED = {
  project: projects,
  disk: { value: projectSettings.value, updatedAt: projectSettings.updatedAt },
}
const isDisk = and(eq(projectSettings.projectRef, projects.ref), eq(projectSettings.area, 'disk'))

export async function listOrganizationProjects(
  { db, engine }: Ctx,
  organization: OrganizationAccess,
  query: z.output<typeof ProjectPageQuery>,
) {
  const { offset, limit, search, sort, statuses } = query
  const where = and(
    isVisibleIn(organization),
    search ? nameContains(search) : undefined,
    statuses ? inArray(projects.status, statuses) : undefined,
  )
  // Without a filter, the stored count is used. With one, the projects are counted in the same round trip.
  const mustCount = search || statuses || organization.onlyProjects
  const page = db
    .select(LISTED)
    .from(projects)
    .leftJoin(projectSettings, isDisk)
    .where(where)
    .orderBy(...ORDER[sort])
    .limit(limit)
    .offset(offset)
  const [rows, count] = mustCount
    ? await db
        .batch([page, db.select({ count: sql<number>`count(*)::int` }).from(projects).where(where)])
        .then(([rows, [total]]) => [rows, total?.count ?? 0] as const)
    : [await page, organization.projectCount]
  return { projects: rows.map((listed) => toPageItem(listed, engine)), pagination: { count, limit, offset } }
}

export async function listOrganizationProjectsV2(
  { db, engine }: Ctx,
  organization: OrganizationAccess,
  query: z.output<typeof ProjectListQueryV2>,
) {
  const { 'page[size]': size, 'page[after]': after, 'page[before]': before, sort, search } = query
  // A backward page is read in reverse order.
  const backwards = before !== undefined
  const rising = (sort === 'inserted_at') !== backwards
  const position = decodeCursor(backwards ? 'page[before]' : 'page[after]', after ?? before)
  const rows = await db
    .select(LISTED)
    .from(projects)
    .leftJoin(projectSettings, isDisk)
    .where(
      and(isVisibleIn(organization), search ? nameContains(search) : undefined, position && isAfter(position, rising)),
    )
    .orderBy(
      rising ? asc(projects.createdAt) : desc(projects.createdAt),
      rising ? asc(projects.ref) : desc(projects.ref),
    )
    .limit(size + 1)
  const { page, links } = cutPage(`/v2/organizations/${organization.slug}/projects`, query, rows, ({ project }) =>
    encodeCursor(project.createdAt, project.ref),
  )
  return { data: page.map((listed) => toProjectV2(listed, engine)), links }
}

const isVisibleIn = ({ id, onlyProjects }: OrganizationAccess): SQL | undefined =>
  and(
    eq(projects.organizationId, id),
    isNull(projects.removedAt),
    onlyProjects && or(inArray(projects.ref, [...onlyProjects]), inArray(projects.parentRef, [...onlyProjects])),
  )

const nameContains = (search: string) => ilike(projects.name, containsPattern(search))

/** Compares the columns as a row, so that the index (organization, created_at, ref) is used. */
const isAfter = ({ at, id }: Position, rising: boolean) =>
  sql`(${projects.createdAt}, ${projects.ref}) ${sql.raw(rising ? '>' : '<')} (${at.toISOString()}::timestamptz, ${id})`
