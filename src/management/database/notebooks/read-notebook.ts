import { and, eq, sql } from 'drizzle-orm'
import { alias, type PgColumn } from 'drizzle-orm/pg-core'
import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { notebookFavorites, notebooks, users } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import type { Notebook, NotebookList } from './schema.ts'

const editors = alias(users, 'editors')

const LISTED_COLUMNS = {
  id: notebooks.id,
  name: notebooks.name,
  description: notebooks.description,
  insertedAt: notebooks.insertedAt,
  updatedAt: notebooks.updatedAt,
  owner: { id: users.number, username: users.username },
  editor: { id: editors.number, username: editors.username },
}

/** Selects notebooks with their owner and last editor. Lists leave out the cells, which may be long. */
export const selectNotebooks = <More extends Record<string, PgColumn>>({ db, actor }: Ctx, more: More) =>
  db
    .select({
      ...LISTED_COLUMNS,
      ...more,
      favorite: sql<boolean>`exists (select from ${notebookFavorites}
        where ${notebookFavorites.notebookId} = ${notebooks.id} and ${notebookFavorites.userId} = ${actor.userId})`,
    })
    .from(notebooks)
    .leftJoin(users, eq(users.id, notebooks.ownerId))
    .leftJoin(editors, eq(editors.id, notebooks.updatedById))

type NotebookRow = Awaited<ReturnType<typeof selectNotebooks<Record<never, PgColumn>>>>[number]
type Listed = z.input<typeof NotebookList>['data'][number]

export const toListedNotebook = ({ id, insertedAt, updatedAt, editor, ...row }: NotebookRow): Listed => ({
  type: 'notebook',
  id,
  attributes: {
    ...row,
    inserted_at: insertedAt.toISOString(),
    updated_at: updatedAt.toISOString(),
    updated_by: editor,
  },
})

type Cells = z.input<typeof Notebook>['data']['attributes']['content']['cells']

/** The only format of `content`. */
const SCHEMA_VERSION = 1

export async function getNotebook(ctx: Ctx, { ref }: ProjectAccess, id: string): Promise<z.input<typeof Notebook>> {
  const [row] = await selectNotebooks(ctx, { cells: notebooks.cells }).where(isNotebook(ref, id))
  if (!row) throw new ApiError('not_found.notebook')
  const { cells, ...fields } = row
  const listed = toListedNotebook(fields)
  // CreateNotebook and UpdateNotebook validated the cells; the reply's schema checks them again.
  const content = { schema_version: SCHEMA_VERSION, cells: cells as Cells }
  return { data: { ...listed, attributes: { ...listed.attributes, content } } }
}

export const isNotebook = (ref: string, id: string) => and(eq(notebooks.projectRef, ref), eq(notebooks.id, id))
