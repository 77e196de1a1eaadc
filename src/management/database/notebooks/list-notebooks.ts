import { and, asc, desc, eq, ilike, type SQL, sql } from 'drizzle-orm'
import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { notebooks } from '../../../model/tables/index.ts'
import { containsPattern } from '../../../platform/db/like-pattern.ts'
import { cursorOf, cutPage, type Place, placeOf } from '../../../platform/http/pagination.ts'
import { selectNotebooks, toListedNotebook } from './read-notebook.ts'
import type { NotebookListQuery } from './schema.ts'

type Column = 'name' | 'inserted_at'

export async function listNotebooks(ctx: Ctx, { ref }: ProjectAccess, query: z.output<typeof NotebookListQuery>) {
  const { 'page[size]': size, 'page[after]': after, 'page[before]': before, 'filter[name]': part, sort } = query
  const column: Column = sort.endsWith('name') ? 'name' : 'inserted_at'
  const backwards = before !== undefined
  const ascending = !sort.startsWith('-') !== backwards
  const cursor = after ?? before
  const place = cursor === undefined ? undefined : placeOf(backwards ? 'page[before]' : 'page[after]', column, cursor)
  const order = ascending ? asc : desc
  const rows = await selectNotebooks(ctx, {})
    .where(
      and(
        eq(notebooks.projectRef, ref),
        place && isAfter(place, column, ascending),
        part === undefined ? undefined : ilike(notebooks.name, containsPattern(part)),
      ),
    )
    .orderBy(order(column === 'name' ? notebooks.name : notebooks.insertedAt), order(notebooks.id))
    .limit(size + 1)
  const { page, links } = cutPage(`/v2/projects/${ref}/notebooks`, query, rows, (row) => cursorOf(column, row))
  return { data: page.map(toListedNotebook), links }
}

/** Compares the columns as a row, so that the index scan starts at the cursor. */
function isAfter({ key, id }: Place, column: Column, ascending: boolean): SQL {
  const [listed, from] =
    column === 'name' ? [notebooks.name, sql`${key}`] : [notebooks.insertedAt, sql`${key}::timestamptz`]
  return sql`(${listed}, ${notebooks.id}) ${sql.raw(ascending ? '>' : '<')} (${from}, ${id}::uuid)`
}
