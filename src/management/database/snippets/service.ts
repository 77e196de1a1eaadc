import { and, eq, isNull } from 'drizzle-orm'
import type * as z from 'zod'
import { findProject, requirePermission } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { projects, snippetFavorites, snippets } from '../../../model/tables/index.ts'
import type { Writer } from '../../../platform/db/client.ts'
import { requireRow } from '../../../platform/db/require-row.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { invalidField } from '../../kernel/invalid-field.ts'
import { mutate } from '../../kernel/mutate.ts'
import { findSnippet, getSnippet } from './read-snippet.ts'
import type { CreateSnippet, UpdateSnippet } from './schema.ts'

export async function createSnippet(ctx: Ctx, input: z.output<typeof CreateSnippet>) {
  const { project_ref: ref, favorite = false, visibility = 'user', ...fields } = input
  const project = await findProject(ctx, ref)
  requirePermission(project.role, 'database:write')
  const { userId } = ctx.actor
  const id = await mutate(ctx, async ({ tx, trace }) => {
    await lockExistingProject(tx, ref)
    await requireSnippetQuota(tx, ref, userId)
    const row = requireRow(
      await tx
        .insert(snippets)
        .values({
          ...fields,
          visibility,
          projectRef: ref,
          organizationId: project.organizationId,
          ownerId: userId,
          updatedById: userId,
          insertedAt: ctx.now(),
          updatedAt: ctx.now(),
        })
        .returning({ id: snippets.id }),
    )
    if (favorite) await setFavorite(tx, { snippetId: row.id, userId }, favorite)
    await trace({ project, action: 'snippet.create', detail: { snippet: row.id, visibility } })
    return row.id
  })
  return getSnippet(ctx, id)
}

/** Locks the project row. Its removal and other new snippets wait for the lock, so that the limit counts all of them. */
async function lockExistingProject(tx: Writer, ref: string): Promise<void> {
  const [row] = await tx
    .select({ ref: projects.ref })
    .from(projects)
    .where(and(eq(projects.ref, ref), isNull(projects.removedAt)))
    .for('no key update')
  if (!row) throw new ApiError('not_found.project')
}

const SNIPPETS_PER_OWNER_MAX = 1_000

async function requireSnippetQuota(tx: Writer, ref: string, ownerId: string): Promise<void> {
  const own = and(eq(snippets.projectRef, ref), eq(snippets.ownerId, ownerId))
  if ((await tx.$count(snippets, own)) < SNIPPETS_PER_OWNER_MAX) return
  throw new ApiError('unprocessable.too_many_snippets', {
    detail: `you can have at most ${SNIPPETS_PER_OWNER_MAX} in a project`,
  })
}

async function setFavorite(
  tx: Writer,
  favorite: typeof snippetFavorites.$inferInsert,
  isFavorite: boolean,
): Promise<void> {
  const { snippetId, userId } = favorite
  if (isFavorite) await tx.insert(snippetFavorites).values(favorite).onConflictDoNothing()
  else
    await tx
      .delete(snippetFavorites)
      .where(and(eq(snippetFavorites.snippetId, snippetId), eq(snippetFavorites.userId, userId)))
}

export async function updateSnippet(ctx: Ctx, id: string, input: z.output<typeof UpdateSnippet>) {
  const { favorite, ...changes } = input
  const fields = Object.keys(changes)
  const { project, isOwner } = await findChangeable(ctx, id, fields.length > 0)
  if (changes.visibility === 'user' && !isOwner) throw ownerRequired()
  const { userId } = ctx.actor
  await mutate(ctx, async ({ tx, trace }) => {
    // The lock prevents a deletion before the favorite is stored.
    const [row] = await tx.select({ id: snippets.id }).from(snippets).where(eq(snippets.id, id)).for('update')
    if (!row) throw new ApiError('not_found.snippet')
    if (favorite !== undefined) await setFavorite(tx, { snippetId: id, userId }, favorite)
    if (fields.length === 0) return
    await tx
      .update(snippets)
      .set({ ...changes, updatedById: userId, updatedAt: ctx.now() })
      .where(eq(snippets.id, id))
    await trace({ project, action: 'snippet.update', detail: { snippet: id, fields } })
  })
  return getSnippet(ctx, id)
}

export async function deleteSnippet(ctx: Ctx, id: string): Promise<void> {
  const { project } = await findChangeable(ctx, id, true)
  await mutate(ctx, async ({ tx, trace }) => {
    const deleted = await tx.delete(snippets).where(eq(snippets.id, id)).returning({ id: snippets.id })
    if (deleted.length === 0) throw new ApiError('not_found.snippet')
    await trace({ project, action: 'snippet.delete', detail: { snippet: id } })
  })
}

/** Returns the snippet's project. Changes that others see require the owner or an administrator of the project. */
async function findChangeable(ctx: Ctx, id: string, isSharedChange: boolean) {
  const { ownerId, projectRef } = await findSnippet(ctx, id)
  const project = await findProject(ctx, projectRef)
  const isOwner = ownerId === ctx.actor.userId
  requirePermission(project.role, isSharedChange && !isOwner ? 'projects:write' : 'database:write')
  return { project, isOwner }
}

/** Only the owner may make a snippet private: it would be hidden from anyone else who changes it. */
const ownerRequired = () => invalidField('body.visibility', 'only the owner of a snippet can set it to user', 'refused')
