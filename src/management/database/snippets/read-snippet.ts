import { and, eq, isNull, ne, or, type SQL, sql } from 'drizzle-orm'
import { alias, type PgColumn } from 'drizzle-orm/pg-core'
import type * as z from 'zod'
import { visibleOrganizations, visibleProjects } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { organizations, projects, snippetFavorites, snippets, users } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import type { Snippet, SnippetList } from './schema.ts'

const editors = alias(users, 'editors')

const LISTED_COLUMNS = {
  id: snippets.id,
  visibility: snippets.visibility,
  name: snippets.name,
  description: snippets.description,
  insertedAt: snippets.insertedAt,
  updatedAt: snippets.updatedAt,
  project: { id: projects.id, name: projects.name },
  owner: { id: users.number, username: users.username },
  editor: { id: editors.number, username: editors.username },
}

/** Selects snippets with their project, owner and last editor. Lists leave out the SQL, which may be long. */
export const selectSnippets = <More extends Record<string, PgColumn>>({ db, actor }: Ctx, more: More) =>
  db
    .select({
      ...LISTED_COLUMNS,
      ...more,
      favorite: sql<boolean>`exists (select from ${snippetFavorites}
        where ${snippetFavorites.snippetId} = ${snippets.id} and ${snippetFavorites.userId} = ${actor.userId})`,
    })
    .from(snippets)
    .innerJoin(projects, eq(projects.ref, snippets.projectRef))
    .innerJoin(users, eq(users.id, snippets.ownerId))
    .leftJoin(editors, eq(editors.id, snippets.updatedById))

type SnippetRow = Awaited<ReturnType<typeof selectSnippets<Record<never, PgColumn>>>>[number]

export const toListedSnippet = ({
  insertedAt,
  updatedAt,
  editor,
  ...row
}: SnippetRow): z.input<typeof SnippetList>['data'][number] => ({
  ...row,
  type: 'sql',
  inserted_at: insertedAt.toISOString(),
  updated_at: updatedAt.toISOString(),
  updated_by: editor,
})

/** The only format of `content`. */
const SCHEMA_VERSION = '1.0'

export async function getSnippet(ctx: Ctx, id: string): Promise<z.input<typeof Snippet>> {
  const { sql, ...row } = await findSnippet(ctx, id)
  const listed = toListedSnippet(row)
  return { ...listed, content: { favorite: listed.favorite, schema_version: SCHEMA_VERSION, sql } }
}

/** Throws 404 and not 403, so that callers cannot learn of snippets that they may not see. */
export async function findSnippet(ctx: Ctx, id: string) {
  const { ownerId, projectRef, sql } = snippets
  const [row] = await selectSnippets(ctx, { ownerId, projectRef, sql }).where(and(eq(snippets.id, id), isVisible(ctx)))
  if (!row) throw new ApiError('not_found.snippet')
  return row
}

const isVisible = ({ actor }: Ctx): SQL | undefined =>
  or(
    and(eq(snippets.visibility, 'public'), isInOrganization(isNull(organizations.disabledAt))),
    and(eq(snippets.visibility, 'org'), isInOrganization(visibleOrganizations(actor))),
    and(visibleProjects(actor), or(ne(snippets.visibility, 'user'), eq(snippets.ownerId, actor.userId))),
  )

const isInOrganization = (condition: SQL | undefined): SQL =>
  sql`exists (select from ${organizations} where ${and(eq(organizations.id, snippets.organizationId), condition)})`
