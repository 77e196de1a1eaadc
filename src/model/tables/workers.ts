import { sql } from 'drizzle-orm'
import { index, integer, jsonb, pgTable, primaryKey, text, uniqueIndex, uuid } from 'drizzle-orm/pg-core'
import { instant, lease } from './identity.ts'
import { ofProject } from './projects.ts'

export const WORKER_RUNTIMES = ['node', 'deno'] as const
/** Sizes in the short form, which people write, and in the long form, which clients send. */
export const WORKER_SIZES = ['2gb', '4gb', '2gb-1vcpu', '4gb-2vcpu'] as const
export const WORKER_EXPOSURES = ['public', 'private'] as const
export const SECRETS_SCOPES = ['all', 'supabase', 'none'] as const
export const BUILD_STATES = ['building', 'active', 'failed'] as const

export interface WorkerSpec {
  /** If absent, the runtime is detected from the source. */
  runtime?: (typeof WORKER_RUNTIMES)[number] | undefined
  size: (typeof WORKER_SIZES)[number]
  exposure: (typeof WORKER_EXPOSURES)[number]
  instances: number
  /** Secrets of the project that the worker has in its environment; absent or null for all. */
  secrets_scope?: (typeof SECRETS_SCOPES)[number] | { secret_name: string }[] | null | undefined
}

/** The version of a worker that answers requests. */
export interface ServedWorker {
  /** Id of the build. Each deployment runs in its own isolates. */
  deploymentId: string
  /** SHA-256 of the image, in hex. */
  image: string
  spec: WorkerSpec
  /** Cron expressions of the worker's scheduled calls. */
  crons?: string[]
  /** Size of the manifest of the static assets; absent if there are none. */
  assets?: { manifestBytes: number }
}

/** The row of a deleted worker remains until its instances and its image are removed. Its name can be reused at once. */
export const workers = pgTable(
  'workers',
  {
    id: uuid().primaryKey().defaultRandom(),
    projectRef: ofProject(),
    name: text().notNull(),
    /** Last declared spec; after a failed build, the served spec again. */
    spec: jsonb().$type<WorkerSpec>().notNull(),
    buildState: text('build_state', { enum: BUILD_STATES }).notNull(),
    /** Reason why the build failed, for the developer. */
    stateReason: text('state_reason'),
    /** Null until the first successful build. */
    served: jsonb().$type<ServedWorker>(),
    /** Time of the next scheduled call; null if the served worker has no cron expressions. */
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

/** Presigned uploads of build contexts. Clients PUT them directly to the bucket at `projects/{ref}/workers/uploads/{id}`. */
export const workerUploads = pgTable(
  'worker_uploads',
  {
    id: uuid().primaryKey().defaultRandom(),
    projectRef: ofProject(),
    workerName: text('worker_name').notNull(),
    expiresAt: instant('expires_at').notNull(),
  },
  (t) => [index('worker_uploads_expired').on(t.expiresAt), index('worker_uploads_of_project').on(t.projectRef)],
)

const TASK_KINDS = ['build', 'teardown'] as const
const TASK_STATES = ['pending', 'running', 'done', 'failed', 'superseded'] as const

/** A worker has at most one open task: a newer task supersedes it. */
export const workerTasks = pgTable(
  'worker_tasks',
  {
    id: uuid().primaryKey().defaultRandom(),
    workerId: uuid('worker_id')
      .notNull()
      .references(() => workers.id, { onDelete: 'cascade' }),
    kind: text({ enum: TASK_KINDS }).notNull(),
    /** Null if nothing is built: the served image continues with a new spec. */
    uploadId: uuid('upload_id'),
    spec: jsonb().$type<WorkerSpec>().notNull(),
    state: text({ enum: TASK_STATES }).notNull().default('pending'),
    attempts: integer().notNull().default(0),
    /** Earliest time of the next attempt. Each failed attempt postpones it. */
    dueAt: instant('due_at').notNull(),
    ...lease(),
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

/** Worker images in the bucket, at `projects/{ref}/workers/images/{sha256}`. Two workers may serve the same image. */
export const workerImages = pgTable(
  'worker_images',
  {
    projectRef: ofProject(),
    sha256: text().notNull(),
    /** Time at which the image was last built or last stopped being served. */
    touchedAt: instant('touched_at').notNull(),
  },
  (t) => [primaryKey({ columns: [t.projectRef, t.sha256] }), index('worker_images_by_age').on(t.touchedAt)],
)
