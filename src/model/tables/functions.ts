import { sql } from 'drizzle-orm'
import { boolean, index, integer, jsonb, pgTable, primaryKey, text, uniqueIndex, uuid } from 'drizzle-orm/pg-core'
import { instant } from './identity.ts'
import { projects } from './projects.ts'

export const FUNCTION_STATUSES = ['ACTIVE', 'REMOVED', 'THROTTLED'] as const

/** What was built once; its source and its image are in the bucket, below `projects/{ref}/functions/{id}/`. */
export const functionDeployments = pgTable(
  'function_deployments',
  {
    id: uuid().primaryKey().defaultRandom(),
    projectRef: text('project_ref')
      .notNull()
      .references(() => projects.ref),
    slug: text().notNull(),
    /** SHA-256 of the image, in hex. */
    sha256: text().notNull(),
    /** Paths in the source. */
    entrypoint: text().notNull(),
    importMap: text('import_map'),
    createdAt: instant('created_at').notNull(),
    /** Since when no function is at it; null while one is. Bundled and not deployed yet counts as unused from its creation on. */
    unusedSince: instant('unused_since'),
  },
  (t) => [
    index('function_deployments_unused').on(t.unusedSince).where(sql`unused_since is not null`),
    index('function_deployments_of_project').on(t.projectRef),
  ],
)

export const functions = pgTable(
  'functions',
  {
    id: uuid().primaryKey().defaultRandom(),
    projectRef: text('project_ref')
      .notNull()
      .references(() => projects.ref),
    slug: text().notNull(),
    name: text().notNull(),
    status: text({ enum: FUNCTION_STATUSES }).notNull(),
    version: integer().notNull(),
    verifyJwt: boolean('verify_jwt').notNull(),
    deploymentId: uuid('deployment_id')
      .notNull()
      .references(() => functionDeployments.id),
    createdAt: instant('created_at').notNull(),
    updatedAt: instant('updated_at').notNull(),
  },
  (t) => [
    uniqueIndex('functions_slug_once').on(t.projectRef, t.slug),
    index('functions_deployment').on(t.deploymentId),
  ],
)

/** What a project's functions and workers find in their environment. */
export const functionSecrets = pgTable(
  'function_secrets',
  {
    projectRef: text('project_ref')
      .notNull()
      .references(() => projects.ref),
    name: text().notNull(),
    sealedValue: text('sealed_value').notNull(),
    /** SHA-256 of the value, in hex: clients see by it whether it is the one that they mean. */
    digest: text().notNull(),
    updatedAt: instant('updated_at').notNull(),
  },
  (t) => [primaryKey({ columns: [t.projectRef, t.name] })],
)

/** When a function or a secret was deleted: a branch and its parent do not give back to one another what one has deleted since. */
export const functionDeletions = pgTable(
  'function_deletions',
  {
    projectRef: text('project_ref')
      .notNull()
      .references(() => projects.ref),
    kind: text({ enum: ['function', 'secret'] }).notNull(),
    /** The slug of a function. */
    name: text().notNull(),
    deletedAt: instant('deleted_at').notNull(),
  },
  (t) => [primaryKey({ columns: [t.projectRef, t.kind, t.name] })],
)

/** What a program wrote to its console. */
export interface ConsoleLine {
  level: string
  message: string
  /** ISO 8601. */
  at: string
}

/** One call of a function or worker. Purged by age. */
export const invocations = pgTable(
  'invocations',
  {
    id: uuid().primaryKey().defaultRandom(),
    projectRef: text('project_ref').notNull(),
    kind: text({ enum: ['function', 'worker'] }).notNull(),
    /** Id of the function, or of the worker. */
    programId: uuid('program_id').notNull(),
    deploymentId: uuid('deployment_id').notNull(),
    method: text().notNull(),
    path: text().notNull(),
    /** Of the reply; 0 where none came to be. */
    status: integer().notNull(),
    ms: integer().notNull(),
    console: jsonb().$type<ConsoleLine[]>().notNull(),
    at: instant('at').notNull(),
  },
  (t) => [index('invocations_of_project').on(t.projectRef, t.at), index('invocations_by_age').on(t.at)],
)
