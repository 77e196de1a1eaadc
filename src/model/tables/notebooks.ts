import { sql } from 'drizzle-orm'
import { index, jsonb, pgTable, primaryKey, text, uuid } from 'drizzle-orm/pg-core'
import { instant, ofUser, users } from './identity.ts'
import { ofProject } from './projects.ts'

/** Ordered cells of text and SQL. The notebook area defines the schema of a cell. Lists omit cells, as they may be large. */
export const notebooks = pgTable(
  'notebooks',
  {
    id: uuid().primaryKey().default(sql`uuidv7()`),
    projectRef: ofProject(),
    ownerId: uuid('owner_id').references(() => users.id, { onDelete: 'set null' }),
    updatedById: uuid('updated_by_id').references(() => users.id, { onDelete: 'set null' }),
    name: text().notNull(),
    description: text(),
    cells: jsonb().$type<Record<string, unknown>[]>().notNull(),
    insertedAt: instant('inserted_at').notNull(),
    updatedAt: instant('updated_at').notNull(),
  },
  (t) => [
    index('notebooks_by_age').on(t.projectRef, t.insertedAt, t.id),
    index('notebooks_by_name').on(t.projectRef, t.name, t.id),
    index('notebooks_owner').on(t.ownerId),
    index('notebooks_updated_by').on(t.updatedById),
  ],
)

/** Notebooks that a user has marked as favorites. */
export const notebookFavorites = pgTable(
  'notebook_favorites',
  {
    notebookId: uuid('notebook_id')
      .notNull()
      .references(() => notebooks.id, { onDelete: 'cascade' }),
    userId: ofUser(),
  },
  (t) => [primaryKey({ columns: [t.notebookId, t.userId] }), index('notebook_favorites_user').on(t.userId)],
)
