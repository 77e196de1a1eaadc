import { and, asc, desc, eq, isNull, or, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import {
  actionRuns,
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
import type { BranchRow } from '../branches/convert.ts'
import { type GitBranch, held } from './git-branch-task.ts'
import { isWithin } from './repository-files.ts'
import { addPreview, NoRoom, removePreview, startCommit } from './start-preview.ts'

/** So many milliseconds until it is looked at again, no more until somebody asks, or never more, as nothing is to be known of it. */
export type Next = number | 'nothing' | 'never'

/** Its end asks for a look; this is for a run that ends otherwise. */
const RUN_MS = 300_000
/** Until other work on a project has perhaps ended. */
const BUSY_MS = 5_000

type Project = typeof projects.$inferSelect & { organizationSlug: string }
type Connection = typeof gitConnections.$inferSelect

/** A branch of a repository as it is followed for a project. */
export interface Followed {
  row: GitBranch
  connection: Connection
  project: Project
  repository: Repository
}

/** Makes of the project what the branch at GitHub is now, and tells GitHub. Must bear being done again from its start. */
export async function watch(ctx: SystemCtx, row: GitBranch): Promise<Next> {
  const place = await findPlace(ctx, row)
  const github = openGithub(ctx)
  if (!place) return 'never'
  if (!github || place.project.status === 'GOING_DOWN') return 'nothing'
  const repository = await openRepository(github, place.connection)
  await keepName(ctx, place.connection, repository)
  const state = await stateOfRun(ctx, row)
  const followed = { ...place, repository, row: state === 'canceled' ? await endCanceled(ctx, row) : row }
  await tell(ctx, followed)
  const running = state === 'pending' || state === 'running'
  const { branch, main } = await findBranches(ctx, followed)
  const production = main?.gitBranch ?? repository.defaultBranch
  if (row.name !== production) return watchPreview(ctx, followed, branch, running)
  return running ? RUN_MS : watchProduction(ctx, followed, main)
}

async function findPlace({ db }: SystemCtx, { connectionId }: GitBranch) {
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

async function keepName(
  { db, now }: SystemCtx,
  { id, repositoryName }: Connection,
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

/** A run that was canceled, as its branch was deleted, has not told of its end. */
async function endCanceled(ctx: SystemCtx, row: GitBranch): Promise<GitBranch> {
  const report: CommitReport = { state: 'error', description: 'The run was canceled' }
  await ctx.db.update(gitBranches).set({ report, runId: null }).where(held(row))
  return { ...row, report, runId: null }
}

/** What stands in the row to be told is told, and taken out of it unless something newer has come. */
async function tell(ctx: SystemCtx, { row, project, repository }: Followed): Promise<void> {
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
    .where(and(held(row), sql`${gitBranches.report} = ${JSON.stringify(report)}::jsonb`))
}

/** Of a run that ended with its branch. */
const CLOSED: CommitReport = { state: 'error', description: 'The pull request was closed' }

/** Two projects may follow one repository. */
const contextOf = ({ ref }: Project) => `pilothouse/${ref}`

/** The default branch, if there is one, and the branch of this name: of several the oldest, one for pull requests before others. */
async function findBranches({ db }: SystemCtx, { project, row }: Followed) {
  const rows = await db
    .select()
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

async function watchProduction(ctx: SystemCtx, followed: Followed, main: BranchRow | undefined): Promise<Next> {
  const { row, repository, project } = followed
  const head = await headCommitOf(repository, row.name)
  if (head === undefined) return 'never'
  if (head === row.commit) return 'nothing'
  return begin(ctx, followed, head, {
    ref: project.ref,
    start: () => startCommit(ctx, followed, head, { id: main?.id, projectRef: project.ref }),
  })
}

async function watchPreview(
  ctx: SystemCtx,
  followed: Followed,
  branch: BranchRow | undefined,
  running: boolean,
): Promise<Next> {
  const { row, repository } = followed
  const pulls = await openPullRequests(repository, row.name, row.pullRequest)
  if (branch && pulls.length === 0 && branch.forPullRequests && !branch.persistent) {
    await removePreview(ctx, followed, branch)
    if (running) await tell(ctx, { ...followed, row: { ...row, report: CLOSED } })
    return 'never'
  }
  if (branch) await keepNumber(ctx, branch, pulls)
  if (running) return RUN_MS
  if (!branch) return watchNew(ctx, followed, pulls)
  const head = await headCommitOf(repository, row.name)
  if (head === undefined) return 'nothing'
  if (head === row.commit && branch.id === row.branchId) return 'nothing'
  return begin(ctx, followed, head, {
    ref: branch.projectRef,
    start: () => startCommit(ctx, followed, head, branch),
    // Nothing was made of it yet, so it may as well be made anew.
    unmade: async () => {
      if (!branch.forPullRequests || branch.persistent) return false
      await removePreview(ctx, followed, branch)
      return true
    },
  })
}

/** The pull request it was told of before, as long as that is open. */
async function keepNumber({ db }: SystemCtx, { id, prNumber }: BranchRow, pulls: readonly number[]): Promise<void> {
  const number = pulls.find((open) => open === prNumber) ?? pulls[0] ?? null
  if (number !== prNumber) await db.update(branches).set({ prNumber: number }).where(eq(branches.id, id))
}

async function watchNew(ctx: SystemCtx, followed: Followed, pulls: number[]): Promise<Next> {
  const { connection, repository, project, row } = followed
  const [pull] = pulls
  if (pull === undefined || !connection.newBranchPerPr) return 'never'
  const head = await headCommitOf(repository, row.name)
  if (head === undefined) return 'nothing'
  if (connection.changesOnly && !(await changesAny(repository, pulls, connection.workdir))) return 'never'
  return begin(ctx, followed, head, { ref: project.ref, start: () => addPreview(ctx, followed, head, pull) })
}

async function changesAny(repository: Repository, pulls: readonly number[], workdir: string): Promise<boolean> {
  for (const number of pulls) if (await changesFile(repository, number, (path) => isWithin(workdir, path))) return true
  return false
}

interface Beginning {
  /** Whose database must take it. */
  ref: string
  start(): Promise<GitBranch>
  /** Where that has never come to be: whether it is gone now. */
  unmade?(): Promise<boolean>
}

/** Starts a run and tells GitHub of it. What other work on the project holds up is tried again; what nothing but people can mend, GitHub is told. */
async function begin(
  ctx: SystemCtx,
  followed: Followed,
  head: string,
  { ref, start, unmade }: Beginning,
): Promise<Next> {
  const started = await start().catch(async (error: unknown) => {
    if (error instanceof NoRoom) return error.message
    if (!(error instanceof ApiError)) throw error
    if (error.code !== 'conflict.project_status')
      return error.detail ? `${error.message}: ${error.detail}` : error.message
    const status = await statusOf(ctx, ref)
    if (status === 'INIT_FAILED' && (await unmade?.())) return undefined
    return STUCK.includes(status) ? `The project is ${status}` : BUSY_MS
  })
  if (started === undefined) return 0
  if (typeof started === 'number') return started
  if (typeof started !== 'string') {
    await tell(ctx, { ...followed, row: started })
    return RUN_MS
  }
  const report: CommitReport = { state: 'error', description: started }
  const refused = { commit: head, branchId: null, runId: null, report }
  await ctx.db.update(gitBranches).set(refused).where(held(followed.row))
  await tell(ctx, { ...followed, row: { ...followed.row, ...refused } })
  return 'nothing'
}

/** These do not pass by themselves. */
const STUCK = ['INACTIVE', 'INIT_FAILED', 'PAUSE_FAILED', 'RESTORE_FAILED', 'GOING_DOWN', 'REMOVED', 'UNKNOWN']

async function statusOf({ db }: SystemCtx, ref: string): Promise<string> {
  const [row] = await db.select({ status: projects.status }).from(projects).where(eq(projects.ref, ref))
  return row?.status ?? 'REMOVED'
}
