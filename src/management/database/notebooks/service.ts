import { and, eq, sql } from 'drizzle-orm'
import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { notebookFavorites, notebooks } from '../../../model/tables/index.ts'
import type { Writer } from '../../../platform/db/client.ts'
import { newTimedId } from '../../../platform/db/id.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { changeProject } from '../../kernel/change-project.ts'
import { mutate } from '../../kernel/mutate.ts'
import { requireExistingIds, requireUniqueIds, withIds } from './cells.ts'
import { getNotebook, isNotebook } from './read-notebook.ts'
import type { CreateNotebook, UpdateNotebook } from './schema.ts'

/** The maximum number of notebooks per project; with the content limit, it bounds the storage. */
const NOTEBOOKS_MAX = 1_000

export async function createNotebook(ctx: Ctx, project: ProjectAccess, { data }: z.output<typeof CreateNotebook>) {
  const { favorite = false, content, ...fields } = data.attributes
  requireUniqueIds(content.cells)
  const cells = withIds(content.cells)
  const { ref } = project
  const { userId } = ctx.actor
  const at = ctx.now()
  const id = newTimedId(at)
  await changeProject(ctx, project, async ({ tx, record }) => {
    await requireNotebookQuota(tx, ref)
    const people = { ownerId: userId, updatedById: userId }
    const times = { insertedAt: at, updatedAt: at }
    await tx.insert(notebooks).values({ id, projectRef: ref, ...fields, ...people, ...times, cells })
    if (favorite) await setFavorite(tx, { notebookId: id, userId }, favorite)
    await record('notebook.create', { notebook: id })
  })
  return getNotebook(ctx, project, id)
}

/** Requires the project lock, so that concurrent requests cannot exceed the limit. */
async function requireNotebookQuota(tx: Writer, ref: string): Promise<void> {
  if ((await tx.$count(notebooks, eq(notebooks.projectRef, ref))) < NOTEBOOKS_MAX) return
  throw new ApiError('unprocessable.too_many_notebooks', { detail: `a project can have at most ${NOTEBOOKS_MAX}` })
}

async function setFavorite(
  tx: Writer,
  favorite: typeof notebookFavorites.$inferInsert,
  isFavorite: boolean,
): Promise<void> {
  const { notebookId, userId } = favorite
  if (isFavorite) await tx.insert(notebookFavorites).values(favorite).onConflictDoNothing()
  else
    await tx
      .delete(notebookFavorites)
      .where(and(eq(notebookFavorites.notebookId, notebookId), eq(notebookFavorites.userId, userId)))
}

const CELL_IDS = sql<string[]>`jsonb_path_query_array(${notebooks.cells}, '$[*].id')`

export async function updateNotebook(
  ctx: Ctx,
  project: ProjectAccess,
  id: string,
  { data }: z.output<typeof UpdateNotebook>,
) {
  const { favorite, ...changes } = data.attributes
  const { content, ...columns } = changes
  const fields = Object.keys(changes)
  const { userId } = ctx.actor
  requireUniqueIds(content?.cells ?? [])
  await mutate(ctx, async ({ tx, trace }) => {
    // The lock prevents a deletion before the favorite is stored.
    const [row] = await tx
      .select({ cellIds: CELL_IDS })
      .from(notebooks)
      .where(isNotebook(project.ref, id))
      .for('update')
    if (!row) throw new ApiError('not_found.notebook')
    requireExistingIds(content?.cells ?? [], row.cellIds)
    if (favorite !== undefined) await setFavorite(tx, { notebookId: id, userId }, favorite)
    if (fields.length === 0) return
    await tx
      .update(notebooks)
      .set({ ...columns, ...(content && { cells: withIds(content.cells) }), updatedById: userId, updatedAt: ctx.now() })
      .where(eq(notebooks.id, id))
    await trace({ project, action: 'notebook.update', detail: { notebook: id, fields } })
  })
  return getNotebook(ctx, project, id)
}

export async function deleteNotebook(ctx: Ctx, project: ProjectAccess, id: string): Promise<void> {
  await mutate(ctx, async ({ tx, trace }) => {
    const deleted = await tx.delete(notebooks).where(isNotebook(project.ref, id)).returning({ id: notebooks.id })
    if (deleted.length === 0) throw new ApiError('not_found.notebook')
    await trace({ project, action: 'notebook.delete', detail: { notebook: id } })
  })
}
