import { and, asc, eq, isNull, lte, ne, sql } from 'drizzle-orm'
import type * as z from 'zod'
import { type BranchAccess, findProject, type ProjectAccess, requirePermission } from '../../auth/access.ts'
import { roleAllows } from '../../auth/roles.ts'
import { uniqueViolation } from '../../db/failure.ts'
import { type Mutation, mutate } from '../../db/mutate.ts'
import {
  branches,
  organizations,
  projectSettings,
  projects,
  type RunKind,
  type TaskKind,
} from '../../db/schema/index.ts'
import type { Ctx, SystemCtx } from '../../env.ts'
import { ApiError } from '../../http/error.ts'
import { randomLetters } from '../../http/values.ts'
import { jwtSecretOf, passwordOf } from '../../secrets/project.ts'
import { seal } from '../../secrets/seal.ts'
import { majorOf } from '../projects/convert.ts'
import { sealSecrets } from '../projects/secrets.ts'
import { cancelTasks, startTask } from '../projects/tasks.ts'
import { ACTIVE } from '../projects/values.ts'
import { type BranchRow, toBranch, toBranchV2, toEventFields } from './convert.ts'
import { requireNotifyUrl, setNotifyUrl } from './notify.ts'
import { startRun } from './runs.ts'
import type { CreateBranch, CreateBranchV2, UpdateBranch } from './schema.ts'

const NAME_TAKEN = ['branches_name_once', 'branches_default_once', 'branches_project_once']
const DEFAULT_NAME = 'main'
const GRACE_MS = 60 * 60 * 1000
/** Work on a branch that gives way when the branch is deleted. */
const OWN_WORK: readonly TaskKind[] = ['branch_create', 'branch_push', 'branch_reset']
const PROJECT_WORK: readonly TaskKind[] = ['create', 'pause', 'restore', 'restart', 'backup', 'restore_backup']

const subject = ({ organizationId, ref }: ProjectAccess) => ({ organizationId, projectRef: ref })

export async function listBranches(ctx: Ctx, project: ProjectAccess) {
  const [[disabled], rows] = await ctx.db.batch([
    ctx.db
      .select({ area: projectSettings.area })
      .from(projectSettings)
      .where(and(eq(projectSettings.projectRef, project.ref), eq(projectSettings.area, 'branching'))),
    ctx.db
      .select({ branch: branches, status: projects.status })
      .from(branches)
      .innerJoin(projects, eq(projects.ref, branches.projectRef))
      .where(and(eq(branches.parentRef, project.ref), isNull(branches.removedAt)))
      .orderBy(asc(branches.createdAt), asc(branches.id)),
  ])
  if (disabled) throw new ApiError('unprocessable.branching_disabled')
  return rows.map(({ branch, status }) => toBranch(branch, status))
}

export async function getBranch({ db }: Ctx, project: ProjectAccess, name: string) {
  const [row] = await db
    .select({ branch: branches, status: projects.status })
    .from(branches)
    .innerJoin(projects, eq(projects.ref, branches.projectRef))
    .where(and(eq(branches.parentRef, project.ref), eq(branches.name, name), isNull(branches.removedAt)))
  if (!row) throw new ApiError('not_found.branch')
  return toBranch(row.branch, row.status)
}

/** Passwords and keys are for who may read secrets: with them one could do more than the role allows. */
export async function getBranchConfig(ctx: Ctx, { project }: BranchAccess) {
  const { host, port, user } = ctx.engine.connection(project.ref)
  return {
    ref: project.ref,
    postgres_version: project.postgresVersion,
    postgres_engine: majorOf(project.postgresVersion),
    release_channel: 'ga',
    status: project.status,
    db_host: host,
    db_port: port,
    db_user: user,
    ...(roleAllows(project.role, 'secrets:read') && {
      db_pass: await passwordOf(ctx, project),
      jwt_secret: await jwtSecretOf(ctx, project),
    }),
  }
}

export async function createBranch(ctx: Ctx, parent: ProjectAccess, input: z.output<typeof CreateBranch>) {
  const row = await create(ctx, parent, input, 'body.notify_url')
  return toBranch(row, row.isDefault ? parent.status : 'COMING_UP')
}

export async function createBranchV2(
  ctx: Ctx,
  parent: ProjectAccess,
  { data: { attributes } }: z.output<typeof CreateBranchV2>,
) {
  const { name, desired_disk_size_gb: diskGb, ...rest } = attributes
  return toBranchV2(
    await create(ctx, parent, { ...rest, branch_name: name, diskGb }, 'body.data.attributes.notify_url'),
  )
}

type NewBranch = z.output<typeof CreateBranch> & { diskGb?: number | undefined }

async function create(ctx: Ctx, parent: ProjectAccess, input: NewBranch, urlField: string): Promise<BranchRow> {
  if (parent.parentRef !== null) {
    throw new ApiError('unprocessable.branch', { detail: 'a branch has no branches of its own: name its parent' })
  }
  if (!ACTIVE.includes(parent.status)) {
    throw new ApiError('conflict.project_status', { detail: `its status is ${parent.status}, not ACTIVE_HEALTHY` })
  }
  await requirePlan(ctx, parent)
  if (input.notify_url !== undefined) await requireNotifyUrl(ctx, input.notify_url, urlField)
  const ref = randomLetters()
  const sealed = await sealSecrets(ctx, ref, randomLetters(32))
  const id = crypto.randomUUID()
  const sealedSecrets = input.secrets
    ? await seal(ctx.config.ENCRYPTION_KEY, JSON.stringify(input.secrets), secretsOf(id))
    : null
  return mutate(ctx, async (mutation) => {
    await mutation.tx
      .delete(projectSettings)
      .where(and(eq(projectSettings.projectRef, parent.ref), eq(projectSettings.area, 'branching')))
    if (input.is_default) return insertDefault(ctx, mutation, parent, input)
    await ensureDefault(ctx, mutation, parent)
    const at = ctx.now()
    await mutation.tx.insert(projects).values({
      ref,
      parentRef: parent.ref,
      organizationId: parent.organizationId,
      name: input.branch_name,
      region: input.region ?? parent.region,
      instanceSize: input.desired_instance_size ?? parent.instanceSize,
      status: 'COMING_UP',
      storageConfig: parent.storageConfig,
      createdAt: at,
      ...sealed,
    })
    const branch = await insert(ctx, mutation, {
      id,
      projectRef: ref,
      parentRef: parent.ref,
      name: input.branch_name,
      gitBranch: input.git_branch ?? null,
      persistent: input.persistent ?? false,
      withData: input.with_data ?? false,
      status: 'CREATING_PROJECT',
      notifyUrl: input.notify_url ?? null,
      sealedSecrets,
    })
    if (input.diskGb) {
      const value = { size_gb: input.diskGb }
      await mutation.tx.insert(projectSettings).values({ projectRef: ref, area: 'disk', value, updatedAt: at })
    }
    if (branch.notifyUrl) await setNotifyUrl(ctx, mutation, parent.organizationId, branch)
    await startRun(ctx, mutation, { branch, kind: 'create' })
    await tell(mutation, parent, branch, 'v1.project.branch.created')
    await mutation.trace({ ...subject(parent), action: 'branch.create', detail: { branch: branch.id, ref } })
    return branch
  })
}

const secretsOf = (branchId: string) => `branches/${branchId}/secrets`

async function requirePlan({ db }: Ctx, { organizationId }: ProjectAccess): Promise<void> {
  const [row] = await db
    .select({ plan: organizations.plan })
    .from(organizations)
    .where(eq(organizations.id, organizationId))
  if (row?.plan === 'free') throw new ApiError('payment_required.branching', { detail: 'its plan is free' })
}

type NewRow = Omit<typeof branches.$inferInsert, 'createdAt' | 'updatedAt'>

async function insert(ctx: Ctx, { tx }: Mutation, row: NewRow): Promise<BranchRow> {
  const at = ctx.now()
  const [branch] = await tx
    .insert(branches)
    .values({ ...row, createdAt: at, updatedAt: at })
    .returning()
    .catch((error) => rejectTaken(error, row.name))
  if (!branch) throw new Error('the branch was not inserted')
  return branch
}

function rejectTaken(error: unknown, name: string): never {
  const broken = uniqueViolation(error)
  if (!broken || !NAME_TAKEN.includes(broken)) throw error
  const detail = broken === 'branches_name_once' ? name : 'the project has a default branch already'
  throw new ApiError('conflict.branch_name', { detail, cause: error })
}

/** Stands for the parent: nothing is copied. */
async function insertDefault(
  ctx: Ctx,
  mutation: Mutation,
  parent: ProjectAccess,
  input: NewBranch,
): Promise<BranchRow> {
  const branch = await insert(ctx, mutation, {
    projectRef: parent.ref,
    parentRef: parent.ref,
    name: input.branch_name,
    gitBranch: input.git_branch ?? null,
    isDefault: true,
    persistent: true,
    withData: true,
    status: 'FUNCTIONS_DEPLOYED',
  })
  await tell(mutation, parent, branch, 'v1.project.branch.created')
  await mutation.trace({ ...subject(parent), action: 'branch.create', detail: { branch: branch.id, ref: parent.ref } })
  return branch
}

/** The first branch of a project makes the project itself the default one. */
async function ensureDefault(ctx: Ctx, { tx }: Mutation, parent: ProjectAccess): Promise<void> {
  const at = ctx.now()
  await tx
    .insert(branches)
    .values({
      projectRef: parent.ref,
      parentRef: parent.ref,
      name: DEFAULT_NAME,
      isDefault: true,
      persistent: true,
      withData: true,
      status: 'FUNCTIONS_DEPLOYED',
      createdAt: at,
      updatedAt: at,
    })
    .onConflictDoNothing()
}

export async function updateBranch(ctx: Ctx, access: BranchAccess, input: z.output<typeof UpdateBranch>) {
  const { project } = access
  if (input.notify_url !== undefined) await requireNotifyUrl(ctx, input.notify_url, 'body.notify_url')
  const row = await mutate(ctx, async (mutation) => {
    const [branch] = await mutation.tx
      .update(branches)
      .set({
        ...(input.branch_name !== undefined && { name: input.branch_name }),
        ...(input.git_branch !== undefined && { gitBranch: input.git_branch }),
        ...(input.persistent !== undefined && { persistent: input.persistent }),
        ...(input.status !== undefined && { status: input.status }),
        ...(input.request_review !== undefined && { reviewRequestedAt: input.request_review ? ctx.now() : null }),
        ...(input.notify_url !== undefined && { notifyUrl: input.notify_url }),
        updatedAt: ctx.now(),
      })
      .where(and(eq(branches.id, access.id), isNull(branches.removedAt)))
      .returning()
      .catch((error) => rejectTaken(error, input.branch_name ?? ''))
    if (!branch) throw new ApiError('not_found.branch')
    if (input.notify_url !== undefined) await setNotifyUrl(ctx, mutation, project.organizationId, branch)
    await tell(mutation, project, branch, 'v1.project.branch.updated')
    const fields = Object.keys(input)
    await mutation.trace({ ...subject(project), action: 'branch.update', detail: { branch: branch.id, fields } })
    return branch
  })
  return toBranch(row, project.status)
}

export async function startAction(ctx: Ctx, access: BranchAccess, kind: Exclude<RunKind, 'create'>, version?: string) {
  const { project } = access
  if (access.isDefault) throw new ApiError('unprocessable.branch', { detail: 'it is the default branch' })
  if (!ACTIVE.includes(project.status)) {
    throw new ApiError('conflict.project_status', { detail: `its status is ${project.status}, not ACTIVE_HEALTHY` })
  }
  if (kind === 'merge') await requireParent(ctx, access)
  const id = await mutate(ctx, async (mutation) => {
    const [branch] = await mutation.tx
      .update(branches)
      .set({ ...(kind !== 'merge' && { status: 'RUNNING_MIGRATIONS' as const }), updatedAt: ctx.now() })
      .where(and(eq(branches.id, access.id), isNull(branches.removedAt)))
      .returning()
    if (!branch) throw new ApiError('not_found.branch')
    const runId = await startRun(ctx, mutation, { branch, kind, migrationVersion: version })
    if (kind === 'reset')
      await mutation.tx.update(projects).set({ status: 'RESTORING' }).where(eq(projects.ref, project.ref))
    await tell(mutation, project, branch, 'v1.project.branch.updated')
    await mutation.trace({ ...subject(project), action: `branch.${kind}`, detail: { branch: branch.id, run: runId } })
    return runId
  })
  return { workflow_run_id: id, message: 'ok' }
}

/** Who may write to the branch alone may not change its parent. */
async function requireParent(ctx: Ctx, { parentRef }: BranchAccess): Promise<void> {
  const parent = await findProject(ctx, parentRef)
  requirePermission(parent.role, 'environment:write')
  if (ACTIVE.includes(parent.status)) return
  throw new ApiError('conflict.project_status', {
    detail: `the parent's status is ${parent.status}, not ACTIVE_HEALTHY`,
  })
}

export async function removeBranch(ctx: Ctx, access: BranchAccess, force: boolean) {
  if (access.isDefault) throw new ApiError('unprocessable.branch', { detail: 'the default branch cannot be deleted' })
  if (access.persistent) {
    throw new ApiError('unprocessable.branch', {
      detail: 'a persistent branch cannot be deleted: set persistent to false first',
    })
  }
  await mutate(ctx, (mutation) => (force ? remove(ctx, mutation, access) : scheduleRemoval(ctx, mutation, access)))
  return { message: 'ok' }
}

async function scheduleRemoval(ctx: Ctx, mutation: Mutation, { id, project }: BranchAccess): Promise<void> {
  const at = ctx.now()
  const [branch] = await mutation.tx
    .update(branches)
    .set({
      deletionScheduledAt: sql`coalesce(${branches.deletionScheduledAt}, ${new Date(at.getTime() + GRACE_MS)})`,
      updatedAt: at,
    })
    .where(and(eq(branches.id, id), isNull(branches.removedAt)))
    .returning()
  if (!branch) throw new ApiError('not_found.branch')
  await tell(mutation, project, branch, 'v1.project.branch.updated')
  await mutation.trace({ ...subject(project), action: 'branch.delete.schedule', detail: { branch: id } })
}

type Removable = Pick<BranchRow, 'id'> & { project: Pick<ProjectAccess, 'ref' | 'organizationId' | 'organizationSlug'> }

/** The branch is gone at once; its database and bytes follow as a task of its project. */
async function remove(ctx: Ctx | SystemCtx, mutation: Mutation, { id, project }: Removable): Promise<void> {
  const { tx } = mutation
  const { ref, organizationId } = project
  const [branch] = await tx
    .update(branches)
    .set({ removedAt: ctx.now() })
    .where(and(eq(branches.id, id), isNull(branches.removedAt)))
    .returning()
  if (!branch) throw new ApiError('not_found.branch')
  await cancelTasks(ctx, mutation, { ref, kinds: [...OWN_WORK, ...PROJECT_WORK] })
  await tx.update(projects).set({ status: 'GOING_DOWN', statusReason: null }).where(eq(projects.ref, ref))
  await startTask(ctx, mutation, { ref, kind: 'delete' })
  await tell(mutation, project, branch, 'v1.project.branch.removed')
  await mutation.trace({ organizationId, projectRef: ref, action: 'branch.delete', detail: { branch: id } })
}

export async function restoreBranch(ctx: Ctx, { id, project }: BranchAccess) {
  await mutate(ctx, async (mutation) => {
    const [branch] = await mutation.tx
      .update(branches)
      .set({ deletionScheduledAt: null, updatedAt: ctx.now() })
      .where(and(eq(branches.id, id), isNull(branches.removedAt), sql`${branches.deletionScheduledAt} is not null`))
      .returning()
    if (!branch) throw new ApiError('unprocessable.branch', { detail: 'it is not scheduled for deletion' })
    await tell(mutation, project, branch, 'v1.project.branch.updated')
    await mutation.trace({ ...subject(project), action: 'branch.restore', detail: { branch: id } })
  })
  return { message: 'Branch restoration initiated' }
}

/** All branches go, persistent ones too; the project itself stays as it is. */
export async function disableBranching(ctx: Ctx, project: ProjectAccess): Promise<void> {
  if (project.parentRef !== null) throw new ApiError('unprocessable.branch', { detail: 'a branch has no branches' })
  await mutate(ctx, async (mutation) => {
    const { tx } = mutation
    await removeAll(ctx, mutation, project)
    await tx
      .update(branches)
      .set({ removedAt: ctx.now() })
      .where(and(eq(branches.parentRef, project.ref), isNull(branches.removedAt)))
    await tx
      .insert(projectSettings)
      .values({ projectRef: project.ref, area: 'branching', value: { enabled: false }, updatedAt: ctx.now() })
      .onConflictDoNothing()
    await mutation.trace({ ...subject(project), action: 'branching.disable' })
  })
}

type Parent = Pick<ProjectAccess, 'ref' | 'organizationId' | 'organizationSlug'>

/** The branches of a project that is itself on its way out, or has no branches any more. */
async function removeAll(ctx: Ctx, mutation: Mutation, parent: Parent): Promise<void> {
  const rows = await mutation.tx
    .select({ id: branches.id, ref: branches.projectRef })
    .from(branches)
    .where(and(eq(branches.parentRef, parent.ref), isNull(branches.removedAt), ne(branches.projectRef, parent.ref)))
    .orderBy(branches.id)
    .for('update')
  for (const { id, ref } of rows) await remove(ctx, mutation, { id, project: { ...parent, ref } })
}

/** What the deletion of a project, by its ref, means for branches: its own row, or all that were made from it. */
export async function removeWith(ctx: Ctx, mutation: Mutation, project: ProjectAccess): Promise<void> {
  if (project.parentRef === null) return removeAll(ctx, mutation, project)
  const [branch] = await mutation.tx
    .update(branches)
    .set({ removedAt: ctx.now() })
    .where(and(eq(branches.projectRef, project.ref), isNull(branches.removedAt)))
    .returning()
  if (branch) await tell(mutation, project, branch, 'v1.project.branch.removed')
}

const DUE_MAX = 100

/** Deletes the branches whose grace is over. */
export async function removeDueBranches(ctx: SystemCtx): Promise<void> {
  const due = await ctx.db
    .select({
      id: branches.id,
      ref: projects.ref,
      organizationId: organizations.id,
      organizationSlug: organizations.slug,
    })
    .from(branches)
    .innerJoin(projects, eq(projects.ref, branches.projectRef))
    .innerJoin(organizations, eq(organizations.id, projects.organizationId))
    .where(and(isNull(branches.removedAt), lte(branches.deletionScheduledAt, ctx.now())))
    .limit(DUE_MAX)
  for (const { id, ...project } of due) {
    await mutate(ctx, async (mutation) => {
      // Restored by now: it stays.
      const [still] = await mutation.tx
        .select({ id: branches.id })
        .from(branches)
        .where(and(eq(branches.id, id), isNull(branches.removedAt), lte(branches.deletionScheduledAt, ctx.now())))
        .for('update')
      if (still) await remove(ctx, mutation, { id, project })
    })
  }
}

type Told = 'v1.project.branch.created' | 'v1.project.branch.updated' | 'v1.project.branch.removed'

interface Telling {
  actor?: { userId: string | undefined }
  idempotencyKey?: string
}

/** Events of branches are the parent's. */
export const tell = (
  { publish }: Mutation,
  { organizationId: id, organizationSlug: slug }: Pick<ProjectAccess, 'organizationId' | 'organizationSlug'>,
  branch: BranchRow,
  type: Told,
  { actor, ...once }: Telling = {},
) =>
  publish(
    {
      type,
      organization: { id, slug },
      projectRef: branch.parentRef,
      fields: toEventFields(branch),
      branchId: branch.id,
      ...once,
    },
    actor,
  )
