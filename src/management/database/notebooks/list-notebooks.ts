import { asc, desc, inArray, type SQL, sql } from 'drizzle-orm'
import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { notebooks } from '../../../model/tables/index.ts'
import { containsPattern } from '../../../platform/db/like-pattern.ts'
import { cursorOf, type Place, pageLinks, placeOf } from '../../../platform/http/pagination.ts'
import { selectNotebooks, toListedNotebook } from './read-notebook.ts'
import type { NotebookListQuery } from './schema.ts'

type Query = z.output<typeof NotebookListQuery>
type Column = 'name' | 'inserted_at'

export async function listNotebooks(ctx: Ctx, { ref }: ProjectAccess, query: Query) {
  const { 'page[size]': size, 'page[after]': after, 'page[before]': before, 'filter[name]': part, sort } = query
  const column: Column = sort.endsWith('name') ? 'name' : 'inserted_at'
  // A page before a cursor is read in the opposite direction and then reversed.
  const backwards = before !== undefined
  const ascending = !sort.startsWith('-') !== backwards
  const cursor = after ?? before
  const place = cursor === undefined ? undefined : placeOf(backwards ? 'page[before]' : 'page[after]', column, cursor)
  const ids = sql`(select n.id from ${notebooks} n
    where n.project_ref = ${ref} and ${afterCursor(place, column, ascending)} and ${nameContains(part)}
    order by n.${sql.identifier(column)} ${direction(ascending)}, n.id ${direction(ascending)} limit ${size + 1})`
  const order = ascending ? asc : desc
  const rows = await selectNotebooks(ctx, {})
    .where(inArray(notebooks.id, ids))
    .orderBy(order(column === 'name' ? notebooks.name : notebooks.insertedAt), order(notebooks.id))
  const page = rows.slice(0, size)
  if (backwards) page.reverse()
  const more = rows.length > size
  const cursorAt = (row: (typeof rows)[number] | undefined) => row && cursorOf(column, row)
  return {
    data: page.map(toListedNotebook),
    links: pageLinks(
      `/v2/projects/${ref}/notebooks`,
      { 'page[size]': size, 'filter[name]': part, sort },
      {
        before: (backwards ? more : place !== undefined) ? (cursorAt(page[0]) ?? after) : undefined,
        after: backwards || more ? (cursorAt(page.at(-1)) ?? before) : undefined,
      },
    ),
  }
}

const direction = (ascending: boolean): SQL => sql.raw(ascending ? 'asc' : 'desc')

/** Compares the columns as a row, so that the index scan starts at the cursor. */
function afterCursor(place: Place | undefined, column: Column, ascending: boolean): SQL {
  if (!place) return sql`true`
  const key = column === 'name' ? sql`${place.key}` : sql`${place.key}::timestamptz`
  return sql`(n.${sql.identifier(column)}, n.id) ${sql.raw(ascending ? '>' : '<')} (${key}, ${place.id}::uuid)`
}

const nameContains = (part: string | undefined): SQL =>
  part === undefined ? sql`true` : sql`n.name ilike ${containsPattern(part)}`
