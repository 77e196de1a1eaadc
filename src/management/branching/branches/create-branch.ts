import { and, eq, isNull } from 'drizzle-orm'
import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx, SystemCtx } from '../../../ctx.ts'
import { branchAssociatedData } from '../../../model/secrets/associated-data.ts'
import { newPassword } from '../../../model/secrets/project.ts'
import { BRANCH_COLUMNS, type BranchRow, branches } from '../../../model/tables/index.ts'
import { uniqueViolation } from '../../../platform/db/postgres-errors.ts'
import { requireRow } from '../../../platform/db/require-row.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { seal } from '../../../platform/secrets/seal.ts'
import { requireOrganizationPlan } from '../../account/organizations/plan-features.ts'
import { throwApiError } from '../../database/database/service.ts'
import { GIGABYTE, usedBytesOf } from '../../database/database-settings/disk.ts'
import { READ_ONLY_SHARE } from '../../database/database-settings/read-only.ts'
import { invalidField } from '../../kernel/invalid-field.ts'
import { type Mutation, mutate } from '../../kernel/mutate.ts'
import { majorOf } from '../../projects/projects/convert.ts'
import { requireReleaseChannel, unavailableOption } from '../../projects/projects/creation-options.ts'
import { insertProject, type NewProject, prepareProject } from '../../projects/projects/new-project.ts'
import { requireStatus } from '../../projects/projects/status.ts'
import { removeSettings, saveSettings } from '../../projects/settings/read-settings.ts'
import { publishBranchEvent } from './branch-events.ts'
import { toBranch, toBranchV2 } from './convert.ts'
import { requireNotifyUrl, setNotifyUrl } from './notify-url.ts'
import { startRun } from './runs.ts'
import type { CreateBranch, CreateBranchV2 } from './schema.ts'

const NAME_TAKEN = ['branches_name_once', 'branches_default_once', 'branches_project_once']
const DEFAULT_NAME = 'main'

export async function createBranch(ctx: Ctx, parent: ProjectAccess, input: z.output<typeof CreateBranch>) {
  const row = await create(ctx, parent, input, '')
  return toBranch(row, row.isDefault ? parent.status : 'COMING_UP')
}

export async function createBranchV2(
  ctx: Ctx,
  parent: ProjectAccess,
  { data: { attributes } }: z.output<typeof CreateBranchV2>,
) {
  const { name, desired_disk_size_gb: diskGb, ...rest } = attributes
  const input = { ...rest, branch_name: name, diskGb }
  const row = await create(ctx, parent, input, 'data.attributes.').catch((error) => {
    if (!(error instanceof ApiError) || error.code !== 'unprocessable.branch') throw error
    throw new ApiError('bad_request.branch', { detail: error.detail, cause: error })
  })
  return toBranchV2(row)
}

type NewBranch = z.output<typeof CreateBranch> & { diskGb?: number | undefined }

/** Checks the options: a branch has the region, version and host of its parent. `at` is the prefix of the fields in the body. */
async function requireOptions(ctx: Ctx, parent: ProjectAccess, input: NewBranch, at: string): Promise<void> {
  const { engine } = ctx
  const { diskGb, region, desired_instance_size: size, postgres_engine: version, release_channel: channel } = input
  if (region !== undefined && region !== parent.region) throw unavailableOption(`${at}region`, region, [parent.region])
  const major = majorOf(parent.postgresVersion)
  if (version !== undefined && version !== major) throw unavailableOption(`${at}postgres_engine`, version, [major])
  requireReleaseChannel(channel, `${at}release_channel`)
  const offered = size === undefined ? undefined : await engine.sizes?.offered(parent.ref).catch(throwApiError)
  if (size !== undefined && offered?.has(size) === false)
    throw unavailableOption(`${at}desired_instance_size`, size, [...offered])
  if (diskGb === undefined || !input.with_data) return
  const usedBytes = await usedBytesOf(ctx, parent.ref)
  const sizeMin = Math.floor(usedBytes / (READ_ONLY_SHARE * GIGABYTE)) + 1
  if (diskGb >= sizeMin) return
  const message = `must be at least ${sizeMin}: the parent's database has ${usedBytes} bytes, and a full disk is read-only`
  throw invalidField(`body.${at}desired_disk_size_gb`, message, 'refused')
}

async function create(ctx: Ctx, parent: ProjectAccess, input: NewBranch, at: string): Promise<BranchRow> {
  if (parent.parentRef !== null) {
    throw new ApiError('unprocessable.branch', { detail: 'a branch cannot have branches: use the ref of its parent' })
  }
  if (input.is_default && input.secrets) {
    const detail = 'the default branch is the project itself and uses its secrets: omit secrets'
    throw new ApiError('unprocessable.branch', { detail })
  }
  const { desired_instance_size: size } = input
  if (input.is_default && size !== undefined && size !== parent.instanceSize) {
    const detail = `the default branch is the project itself, whose size is ${parent.instanceSize}: resize the project`
    throw new ApiError('unprocessable.branch', { detail })
  }
  await requireOrganizationPlan(ctx.db, parent.organizationId, 'branching')
  await requireOptions(ctx, parent, input, at)
  if (input.notify_url !== undefined) await requireNotifyUrl(ctx, input.notify_url, `body.${at}notify_url`)
  const prepared = await prepareProject(ctx, newPassword())
  const id = crypto.randomUUID()
  const sealedSecrets = input.secrets
    ? await seal(ctx.config.ENCRYPTION_KEY, JSON.stringify(input.secrets), branchAssociatedData(id))
    : null
  return mutate(ctx, async (mutation) => {
    // The parent is locked, so that its deletion and the disabling of branching, which lock it too, see every branch.
    await requireStatus(mutation, parent.ref)
    const wasDisabled = await removeSettings(mutation.tx, parent.ref, 'branching')
    if (input.is_default) return createDefaultBranch(ctx, mutation, parent, { ...input, wasDisabled })
    return addBranch(ctx, mutation, {
      parent,
      prepared,
      branch: {
        id,
        name: input.branch_name,
        gitBranch: input.git_branch || null,
        persistent: input.persistent ?? false,
        withData: input.with_data ?? false,
        notifyUrl: input.notify_url ?? null,
        sealedSecrets,
      },
      instanceSize: input.desired_instance_size,
      async begin(branch) {
        if (input.diskGb) {
          const value = { size_gb: input.diskGb }
          const { projectRef: ref, createdAt: updatedAt } = branch
          await saveSettings(mutation.tx, { ref, area: 'disk', value, own: ['size_gb'], updatedAt })
        }
        if (branch.notifyUrl) await setNotifyUrl(ctx, mutation, parent.organizationId, branch)
        await startRun(ctx, mutation, { branch, kind: 'create' })
      },
    })
  })
}

type Parent = Pick<
  ProjectAccess,
  'ref' | 'organizationId' | 'organizationSlug' | 'region' | 'instanceSize' | 'postgresVersion'
>

interface NewBranchProject {
  /** The parent, which must be locked. */
  parent: Parent
  prepared: NewProject
  branch: Omit<NewRow, 'projectRef' | 'parentRef' | 'status' | 'isDefault'>
  /** Defaults to the size of the parent. */
  instanceSize?: Parent['instanceSize'] | undefined
  /** Called after the insert, to start the run and store what belongs to the branch. */
  begin(branch: BranchRow): Promise<void>
}

/** Adds a branch with its own project, which a run then fills. */
export async function addBranch(
  ctx: Ctx | SystemCtx,
  mutation: Mutation,
  { parent, prepared, branch: row, instanceSize, begin }: NewBranchProject,
): Promise<BranchRow> {
  await ensureDefaultBranch(ctx, mutation, parent)
  await insertProject(ctx, mutation, prepared, {
    parentRef: parent.ref,
    organizationId: parent.organizationId,
    name: row.name,
    region: parent.region,
    postgresVersion: majorOf(parent.postgresVersion),
    instanceSize: instanceSize ?? parent.instanceSize,
  })
  const { ref } = prepared
  const place = { projectRef: ref, parentRef: parent.ref, status: 'CREATING_PROJECT' as const }
  const branch = await insertBranch(ctx, mutation, { ...row, ...place })
  await begin(branch)
  await publishBranchEvent(mutation, parent, branch, 'v1.project.branch.created')
  await mutation.trace({ project: parent, action: 'branch.create', detail: { branch: branch.id, ref } })
  return branch
}

type NewRow = Omit<typeof branches.$inferInsert, 'createdAt' | 'updatedAt'>

async function insertBranch(ctx: SystemCtx, { tx }: Mutation, row: NewRow): Promise<BranchRow> {
  const at = ctx.now()
  return requireRow(
    await tx
      .insert(branches)
      .values({ ...row, createdAt: at, updatedAt: at })
      .returning(BRANCH_COLUMNS)
      .catch((error) => rejectTakenName(error, row.name)),
  )
}

export function rejectTakenName(error: unknown, name: string): never {
  const broken = uniqueViolation(error)
  if (!broken || !NAME_TAKEN.includes(broken)) throw error
  const detail = broken === 'branches_name_once' ? name : 'the project already has a default branch'
  throw new ApiError('conflict.branch_name', { detail, cause: error })
}

const defaultBranchOf = (ref: string) =>
  ({
    ...{ projectRef: ref, parentRef: ref, isDefault: true, persistent: true, withData: true },
    status: 'FUNCTIONS_DEPLOYED',
  }) as const

/**
 * Creates the default branch, which stands for the parent itself, so nothing is copied. If branching was disabled, a push to the
 * connected repository may have inserted it: that row is then updated, as no client has created it.
 */
async function createDefaultBranch(
  ctx: Ctx,
  mutation: Mutation,
  parent: ProjectAccess,
  input: NewBranch & { wasDisabled: boolean },
): Promise<BranchRow> {
  const fields = {
    name: input.branch_name,
    gitBranch: input.git_branch || null,
    notifyUrl: input.notify_url ?? null,
  }
  const existing = input.wasDisabled ? await updateDefaultBranch(ctx, mutation, parent, fields) : undefined
  const branch = existing ?? (await insertBranch(ctx, mutation, { ...defaultBranchOf(parent.ref), ...fields }))
  await setNotifyUrl(ctx, mutation, parent.organizationId, branch)
  await publishBranchEvent(mutation, parent, branch, `v1.project.branch.${existing ? 'updated' : 'created'}`)
  await mutation.trace({ project: parent, action: 'branch.create', detail: { branch: branch.id, ref: parent.ref } })
  return branch
}

async function updateDefaultBranch(
  { now }: SystemCtx,
  { tx }: Mutation,
  { ref }: ProjectAccess,
  fields: Pick<BranchRow, 'name' | 'gitBranch' | 'notifyUrl'>,
): Promise<BranchRow | undefined> {
  const [branch] = await tx
    .update(branches)
    .set({ ...fields, updatedAt: now() })
    .where(and(eq(branches.parentRef, ref), branches.isDefault, isNull(branches.removedAt)))
    .returning(BRANCH_COLUMNS)
  return branch
}

/** Inserts the default branch if it is missing: with its first branch, the project itself becomes the default branch. */
export async function ensureDefaultBranch(
  ctx: SystemCtx,
  mutation: Mutation,
  parent: Pick<ProjectAccess, 'ref' | 'organizationId' | 'organizationSlug'>,
): Promise<void> {
  const at = ctx.now()
  const [branch] = await mutation.tx
    .insert(branches)
    .values({ ...defaultBranchOf(parent.ref), name: DEFAULT_NAME, createdAt: at, updatedAt: at })
    .onConflictDoNothing()
    .returning(BRANCH_COLUMNS)
  if (branch) await publishBranchEvent(mutation, parent, branch, 'v1.project.branch.created')
}
