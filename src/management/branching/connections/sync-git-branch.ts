import { and, asc, desc, eq, isNull, or, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import {
  actionRuns,
  BRANCH_COLUMNS,
  type BranchRow,
  branches,
  gitBranches,
  gitConnections,
  organizations,
  projects,
  projectTasks,
} from '../../../model/tables/index.ts'
import { GithubRefused, openGithub } from '../../../platform/github/client.ts'
import type { CommitReport } from '../../../platform/github/repository.ts'
import {
  changesFile,
  headCommitOf,
  openPullRequests,
  openRepository,
  type Repository,
  reportStatus,
} from '../../../platform/github/repository.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { isWithin } from '../branches/repository-files.ts'
import { type FollowedBranch, type GitBranch, isLeasedBy } from './followed-branch.ts'
import { addPreview, PreviewRefused, removePreview, STUCK, startCommit } from './start-preview.ts'

/**
 * Milliseconds until the next synchronization, `busy` if another operation on the project must end first, `nothing` until it is
 * requested, or `never` to forget the branch.
 */
export type Next = number | 'busy' | 'nothing' | 'never'

/** Delay of the fallback for a run that ends without requesting a synchronization. */
const RUN_MS = 300_000

/** Updates the project to the current state of the branch at GitHub, and reports the result there. It must be idempotent. */
export async function syncGitBranch(ctx: SystemCtx, row: GitBranch): Promise<Next> {
  const connected = await findConnectedProject(ctx, row)
  const github = openGithub(ctx)
  if (!connected) return 'never'
  if (!github || connected.project.status === 'GOING_DOWN') return 'nothing'
  const repository = await openRepository(github, connected.connection)
  await updateRepositoryName(ctx, connected.connection, repository)
  const state = await stateOfRun(ctx, row)
  const followed = { ...connected, repository, row: state === 'canceled' ? await endCanceled(ctx, row) : row }
  await sendReport(ctx, followed)
  const isRunning = state === 'pending' || state === 'running'
  const { branch, main } = await findBranches(ctx, followed)
  const production = main?.gitBranch ?? repository.defaultBranch
  if (row.name !== production) return syncPreview(ctx, followed, branch, isRunning)
  return isRunning ? RUN_MS : syncProduction(ctx, followed, main)
}

async function findConnectedProject({ db }: SystemCtx, { connectionId }: GitBranch) {
  const [found] = await db
    .select({ connection: gitConnections, project: projects, organizationSlug: organizations.slug })
    .from(gitConnections)
    .innerJoin(projects, and(eq(projects.ref, gitConnections.projectRef), isNull(projects.removedAt)))
    .innerJoin(organizations, eq(organizations.id, projects.organizationId))
    .where(eq(gitConnections.id, connectionId))
  return (
    found && { connection: found.connection, project: { ...found.project, organizationSlug: found.organizationSlug } }
  )
}

async function updateRepositoryName(
  { db, now }: SystemCtx,
  { id, repositoryName }: FollowedBranch['connection'],
  { name }: Repository,
): Promise<void> {
  if (name === repositoryName) return
  await db.update(gitConnections).set({ repositoryName: name, updatedAt: now() }).where(eq(gitConnections.id, id))
}

async function stateOfRun({ db }: SystemCtx, { runId }: GitBranch) {
  if (runId === null) return undefined
  const [run] = await db
    .select({ state: projectTasks.state })
    .from(actionRuns)
    .innerJoin(projectTasks, eq(projectTasks.id, actionRuns.taskId))
    .where(eq(actionRuns.id, runId))
  return run?.state
}

/** Records the end of a canceled run, which the run itself did not report because its branch was deleted. */
async function endCanceled(ctx: SystemCtx, row: GitBranch): Promise<GitBranch> {
  const report: CommitReport = { state: 'error', description: 'The run was canceled' }
  await ctx.db.update(gitBranches).set({ report, runId: null }).where(isLeasedBy(row))
  return { ...row, report, runId: null }
}

/** Sends the report of the row to GitHub and removes it from the row, unless there is a newer one. */
async function sendReport(ctx: SystemCtx, { row, project, repository }: FollowedBranch): Promise<void> {
  const { report, commit, runId } = row
  if (!report || commit === null) return
  await reportStatus(repository, commit, {
    ...report,
    context: contextOf(project),
    url: runId === null ? undefined : `${ctx.config.BASE_URL}/v1/projects/${project.ref}/actions/${runId}/logs`,
  }).catch((error) => {
    if (!(error instanceof GithubRefused)) throw error
    ctx.log.error('commit_status_refused', { project: project.ref, commit, error: error.message })
  })
  await ctx.db
    .update(gitBranches)
    .set({ report: null })
    .where(and(isLeasedBy(row), sql`${gitBranches.report} = ${JSON.stringify(report)}::jsonb`))
}

/** Report of a run that ended because its branch was removed. */
const CLOSED: CommitReport = { state: 'error', description: 'The pull request was closed' }

/** Context of a commit status; several projects may be connected to one repository. */
const contextOf = ({ ref }: FollowedBranch['project']) => `pilothouse/${ref}`

/** Finds the default branch and the branch of this name. If several have the name, preview branches come first, then the oldest. */
async function findBranches({ db }: SystemCtx, { project, row }: FollowedBranch) {
  const rows = await db
    .select(BRANCH_COLUMNS)
    .from(branches)
    .where(
      and(
        eq(branches.parentRef, project.ref),
        isNull(branches.removedAt),
        or(branches.isDefault, eq(branches.gitBranch, row.name)),
      ),
    )
    .orderBy(desc(branches.forPullRequests), asc(branches.createdAt), asc(branches.id))
  return { main: rows.find(({ isDefault }) => isDefault), branch: rows.find(({ isDefault }) => !isDefault) }
}

async function syncProduction(ctx: SystemCtx, followed: FollowedBranch, main: BranchRow | undefined): Promise<Next> {
  const { row, repository, project } = followed
  const head = await headCommitOf(repository, row.name)
  if (head === undefined) return 'never'
  if (head === row.commit) return 'nothing'
  return startOrReport(ctx, followed, head, {
    ref: project.ref,
    start: () => startCommit(ctx, followed, head, { id: main?.id, projectRef: project.ref }),
  })
}

async function syncPreview(
  ctx: SystemCtx,
  followed: FollowedBranch,
  branch: BranchRow | undefined,
  isRunning: boolean,
): Promise<Next> {
  const { row, repository } = followed
  const pulls = await openPullRequests(repository, row.name, row.pullRequest)
  if (branch && pulls.length === 0 && branch.forPullRequests && !branch.persistent) {
    await removePreview(ctx, followed, branch)
    if (isRunning) await sendReport(ctx, { ...followed, row: { ...row, report: CLOSED } })
    return 'never'
  }
  if (branch) await updatePullRequest(ctx, branch, pulls)
  if (isRunning) return RUN_MS
  if (!branch) return syncNewPreview(ctx, followed, pulls)
  const head = await headCommitOf(repository, row.name)
  if (head === undefined) return 'nothing'
  if (head === row.commit && branch.id === row.branchId) return 'nothing'
  return startOrReport(ctx, followed, head, {
    ref: branch.projectRef,
    start: () => startCommit(ctx, followed, head, branch),
    // A branch whose creation failed is removed and created again.
    removeFailed: async () => {
      if (!branch.forPullRequests || branch.persistent) return false
      await removePreview(ctx, followed, branch)
      return true
    },
  })
}

/** Updates the pull request of a branch; the previous one stays as long as it is open. */
async function updatePullRequest(
  { db }: SystemCtx,
  { id, prNumber }: BranchRow,
  pulls: readonly number[],
): Promise<void> {
  const number = pulls.find((open) => open === prNumber) ?? pulls[0] ?? null
  if (number !== prNumber) await db.update(branches).set({ prNumber: number }).where(eq(branches.id, id))
}

async function syncNewPreview(ctx: SystemCtx, followed: FollowedBranch, pulls: number[]): Promise<Next> {
  const { connection, repository, project, row } = followed
  const [pull] = pulls
  if (pull === undefined || !connection.newBranchPerPr) return 'never'
  const head = await headCommitOf(repository, row.name)
  if (head === undefined) return 'nothing'
  if (connection.changesOnly && !(await changesAny(repository, pulls, connection.workdir))) return 'never'
  return startOrReport(ctx, followed, head, { ref: project.ref, start: () => addPreview(ctx, followed, head, pull) })
}

async function changesAny(repository: Repository, pulls: readonly number[], workdir: string): Promise<boolean> {
  for (const number of pulls) if (await changesFile(repository, number, (path) => isWithin(workdir, path))) return true
  return false
}

interface Start {
  /** The project whose database the run changes. */
  ref: string
  start(): Promise<GitBranch>
  /** Removes a branch whose creation failed. Returns whether it was removed. */
  removeFailed?(): Promise<boolean>
}

/** Starts a run and reports it to GitHub. Retries while another operation runs; reports errors that need a person. */
async function startOrReport(
  ctx: SystemCtx,
  followed: FollowedBranch,
  head: string,
  { ref, start, removeFailed }: Start,
): Promise<Next> {
  const started = await start().catch(async (error: unknown) => {
    if (error instanceof PreviewRefused) return { refusal: error.message }
    if (!(error instanceof ApiError) || error.status >= 500) throw error
    if (error.code !== 'conflict.project_status')
      return { refusal: error.detail ? `${error.message}: ${error.detail}` : error.message }
    const status = await statusOf(ctx, ref)
    if (status === 'INIT_FAILED' && (await removeFailed?.())) return 0
    return STUCK.includes(status) ? { refusal: `The project is ${status}` } : 'busy'
  })
  if (typeof started !== 'object') return started
  if (!('refusal' in started)) {
    await sendReport(ctx, { ...followed, row: started })
    return RUN_MS
  }
  const report: CommitReport = { state: 'error', description: started.refusal }
  const refused = { commit: head, branchId: null, runId: null, report }
  await ctx.db.update(gitBranches).set(refused).where(isLeasedBy(followed.row))
  await sendReport(ctx, { ...followed, row: { ...followed.row, ...refused } })
  return 'nothing'
}

async function statusOf({ db }: SystemCtx, ref: string): Promise<string> {
  const [row] = await db.select({ status: projects.status }).from(projects).where(eq(projects.ref, ref))
  return row?.status ?? 'REMOVED'
}
