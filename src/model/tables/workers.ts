import { sql } from 'drizzle-orm'
import { index, integer, jsonb, pgTable, primaryKey, text, uniqueIndex, uuid } from 'drizzle-orm/pg-core'
import { instant } from './identity.ts'
import { projects } from './projects.ts'

export const WORKER_RUNTIMES = ['node', 'deno'] as const
/** The short names are how people write them, the long ones how clients send them. */
export const WORKER_SIZES = ['2gb', '4gb', '2gb-1vcpu', '4gb-2vcpu'] as const
export const WORKER_EXPOSURES = ['public', 'private'] as const
export const SECRETS_SCOPES = ['all', 'supabase', 'none'] as const
export const BUILD_STATES = ['building', 'active', 'failed'] as const

export interface WorkerSpec {
  /** Absent: what the source is shows by itself. */
  runtime?: (typeof WORKER_RUNTIMES)[number] | undefined
  size: (typeof WORKER_SIZES)[number]
  exposure: (typeof WORKER_EXPOSURES)[number]
  instances: number
  /** Which of the project's secrets it finds in its environment; absent or null for all. */
  secrets_scope?: (typeof SECRETS_SCOPES)[number] | { secret_name: string }[] | null | undefined
}

/** What answers requests. */
export interface ServedWorker {
  /** Of the build that has put it there: each has isolates of its own. */
  deploymentId: string
  /** SHA-256 of the image, in hex. */
  image: string
  spec: WorkerSpec
  /** Cron expressions of the minutes at which it is called. */
  crons?: string[]
  /** It has static assets, whose manifest is so long. */
  assets?: { manifestBytes: number }
}

/** A deleted worker keeps its row, and its name is free, until its instances and its image are gone. */
export const workers = pgTable(
  'workers',
  {
    id: uuid().primaryKey().defaultRandom(),
    projectRef: text('project_ref')
      .notNull()
      .references(() => projects.ref),
    name: text().notNull(),
    /** As it was last declared; after a build that failed, what is served again. */
    spec: jsonb().$type<WorkerSpec>().notNull(),
    buildState: text('build_state', { enum: BUILD_STATES }).notNull(),
    /** Why it failed, for the developer. */
    stateReason: text('state_reason'),
    /** Null until a build has succeeded. */
    served: jsonb().$type<ServedWorker>(),
    /** The next minute that a cron expression of what is served names; null where there is none. */
    cronDueAt: instant('cron_due_at'),
    createdAt: instant('created_at').notNull(),
    updatedAt: instant('updated_at').notNull(),
    deletedAt: instant('deleted_at'),
  },
  (t) => [
    uniqueIndex('workers_name_once').on(t.projectRef, t.name).where(sql`deleted_at is null`),
    index('workers_of_project').on(t.projectRef),
    index('workers_cron_due').on(t.cronDueAt).where(sql`cron_due_at is not null`),
  ],
)

/** A slot into which a build context is PUT, past the API, at `projects/{ref}/workers/uploads/{id}`. */
export const workerUploads = pgTable(
  'worker_uploads',
  {
    id: uuid().primaryKey().defaultRandom(),
    projectRef: text('project_ref')
      .notNull()
      .references(() => projects.ref),
    workerName: text('worker_name').notNull(),
    expiresAt: instant('expires_at').notNull(),
  },
  (t) => [index('worker_uploads_expired').on(t.expiresAt), index('worker_uploads_of_project').on(t.projectRef)],
)

const TASK_KINDS = ['build', 'teardown'] as const
const TASK_STATES = ['pending', 'running', 'done', 'failed', 'superseded'] as const

/** One open task a worker at most: a newer one supersedes it. */
export const workerTasks = pgTable(
  'worker_tasks',
  {
    id: uuid().primaryKey().defaultRandom(),
    workerId: uuid('worker_id')
      .notNull()
      .references(() => workers.id, { onDelete: 'cascade' }),
    kind: text({ enum: TASK_KINDS }).notNull(),
    /** Null where nothing is built: the image that is served goes on with another spec. */
    uploadId: uuid('upload_id'),
    spec: jsonb().$type<WorkerSpec>().notNull(),
    state: text({ enum: TASK_STATES }).notNull().default('pending'),
    attempts: integer().notNull().default(0),
    /** Not before; moved on at each failed attempt. */
    dueAt: instant('due_at').notNull(),
    leaseUntil: instant('lease_until'),
    /** A new one at each claim: who lost the lease can no longer record anything. */
    claim: uuid(),
    lastError: text('last_error'),
    createdAt: instant('created_at').notNull(),
    finishedAt: instant('finished_at'),
  },
  (t) => [
    uniqueIndex('worker_tasks_one_open').on(t.workerId).where(sql`state in ('pending', 'running')`),
    index('worker_tasks_due').on(t.dueAt).where(sql`state in ('pending', 'running')`),
    index('worker_tasks_of_worker').on(t.workerId),
    index('worker_tasks_of_upload').on(t.uploadId).where(sql`state in ('pending', 'running')`),
  ],
)

/** Programs of workers in the bucket, at `projects/{ref}/workers/images/{sha256}`; two workers may serve the same. */
export const workerImages = pgTable(
  'worker_images',
  {
    projectRef: text('project_ref')
      .notNull()
      .references(() => projects.ref),
    sha256: text().notNull(),
    /** When it was last built, or last left by a worker that served it. */
    touchedAt: instant('touched_at').notNull(),
  },
  (t) => [primaryKey({ columns: [t.projectRef, t.sha256] }), index('worker_images_by_age').on(t.touchedAt)],
)
