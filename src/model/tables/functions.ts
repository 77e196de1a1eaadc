import { sql } from 'drizzle-orm'
import { boolean, index, integer, jsonb, pgTable, primaryKey, text, uniqueIndex, uuid } from 'drizzle-orm/pg-core'
import { instant } from './identity.ts'
import { ofProject } from './projects.ts'

export const FUNCTION_STATUSES = ['ACTIVE', 'REMOVED', 'THROTTLED'] as const

/** Builds of functions. The source and the image are in the bucket, below `projects/{ref}/functions/{id}/`. */
export const functionDeployments = pgTable(
  'function_deployments',
  {
    id: uuid().primaryKey().defaultRandom(),
    projectRef: ofProject(),
    slug: text().notNull(),
    /** SHA-256 of the image and the source, in hex. */
    sha256: text().notNull(),
    /** Path in the source, as is `importMap`. */
    entrypoint: text().notNull(),
    importMap: text('import_map'),
    createdAt: instant('created_at').notNull(),
    /** Time since which no function uses the deployment; null while one does. A new deployment is unused until it is deployed. */
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
    projectRef: ofProject(),
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

/** Environment variables of a project's functions and workers. */
export const functionSecrets = pgTable(
  'function_secrets',
  {
    projectRef: ofProject(),
    name: text().notNull(),
    sealedValue: text('sealed_value').notNull(),
    /** SHA-256 of the value, in hex, by which clients compare values. */
    digest: text().notNull(),
    updatedAt: instant('updated_at').notNull(),
  },
  (t) => [primaryKey({ columns: [t.projectRef, t.name] })],
)

/** Tombstones of functions and secrets, so that a merge between a branch and its parent does not restore what was deleted. */
export const functionDeletions = pgTable(
  'function_deletions',
  {
    projectRef: ofProject(),
    kind: text({ enum: ['function', 'secret'] }).notNull(),
    /** Slug of the function, or name of the secret. */
    name: text().notNull(),
    deletedAt: instant('deleted_at').notNull(),
  },
  (t) => [primaryKey({ columns: [t.projectRef, t.kind, t.name] })],
)

/** A line that a program wrote to its console. */
export interface ConsoleLine {
  level: string
  message: string
  /** ISO 8601. */
  at: string
}

/** Calls of functions and workers. Purged by age. */
export const invocations = pgTable(
  'invocations',
  {
    id: uuid().primaryKey().defaultRandom(),
    projectRef: text('project_ref').notNull(),
    kind: text({ enum: ['function', 'worker'] }).notNull(),
    /** Id of the function or worker. */
    programId: uuid('program_id').notNull(),
    deploymentId: uuid('deployment_id').notNull(),
    method: text().notNull(),
    path: text().notNull(),
    /** Status of the response; 0 if there was none. */
    status: integer().notNull(),
    ms: integer().notNull(),
    console: jsonb().$type<ConsoleLine[]>().notNull(),
    at: instant('at').notNull(),
  },
  (t) => [index('invocations_of_project').on(t.projectRef, t.at), index('invocations_by_age').on(t.at)],
)
