import { and, eq, isNull, sql } from 'drizzle-orm'
import { prepared } from '../db/client.ts'
import { type ProjectStatus, projects, type StorageConfig } from '../db/schema/index.ts'
import type { SystemCtx } from '../env.ts'
import { jwtSecretOf, runnerPasswordOf } from '../secrets/project.ts'

/** A project as its own services see it, whoever calls. */
export interface OpenedProject {
  ref: string
  organizationId: string
  status: ProjectStatus
  jwtSecret: string
  runnerPassword: string
  storage: StorageConfig
}

const STORAGE_DEFAULTS: StorageConfig = { fileSizeLimit: 50 * 1024 * 1024 }

export const storageConfigOf = ({ storageConfig }: { storageConfig: Partial<StorageConfig> }): StorageConfig => ({
  ...STORAGE_DEFAULTS,
  ...storageConfig,
})

/** So long may an isolate that saw a project go by what it was: its status, its settings, or that it was there at all. */
const KEPT_MS = 10_000
const KEPT_MAX = 1_000
const kept = new Map<string, { project: OpenedProject; until: number }>()

/**
 * One statement at most every ten seconds for each project and isolate; undefined for what does not exist or is
 * removed, which is looked up each time. Requests that come at once ask each for themselves, as one must not wait for
 * what another awaits.
 */
export async function openProject(ctx: SystemCtx, ref: string): Promise<OpenedProject | undefined> {
  const now = ctx.now().getTime()
  const cached = kept.get(ref)
  if (cached && now < cached.until && now >= cached.until - KEPT_MS) return cached.project
  return openProjectAnew(ctx, ref)
}

/** For who has met what speaks against the one that is kept. */
export async function openProjectAnew(ctx: SystemCtx, ref: string): Promise<OpenedProject | undefined> {
  const now = ctx.now().getTime()
  kept.delete(ref)
  const project = await findProject(ctx, ref)
  if (!project) return undefined
  if (kept.size >= KEPT_MAX) kept.clear()
  kept.set(ref, { project, until: now + KEPT_MS })
  return project
}

/** For who has changed it: this isolate goes by the change at once. */
export const forgetProject = (ref: string): boolean => kept.delete(ref)

const projectToOpen = prepared((db) =>
  db
    .select({
      ref: projects.ref,
      organizationId: projects.organizationId,
      status: projects.status,
      storageConfig: projects.storageConfig,
      sealedJwtSecret: projects.sealedJwtSecret,
      sealedRunnerPassword: projects.sealedRunnerPassword,
    })
    .from(projects)
    .where(and(eq(projects.ref, sql.placeholder('ref')), isNull(projects.removedAt)))
    .prepare('project_to_open'),
)

async function findProject(ctx: SystemCtx, ref: string): Promise<OpenedProject | undefined> {
  const [row] = await projectToOpen(ctx.db).execute({ ref })
  if (!row) return undefined
  const { organizationId, status } = row
  const [jwtSecret, runnerPassword] = await Promise.all([jwtSecretOf(ctx, row), runnerPasswordOf(ctx, row)])
  return { ref, organizationId, status, jwtSecret, runnerPassword, storage: storageConfigOf(row) }
}
