import { eq, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { splitStatements } from '../../../engine/split-statements.ts'
import { runnerPasswordOf } from '../../../model/secrets/project.ts'
import { actionRuns, type CommitFiles, gitBranches, gitConnections } from '../../../model/tables/index.ts'
import { JSON_PARAMETER_BYTES_MAX, jsonParameterBytes } from '../../../platform/db/json-parameter.ts'
import { GithubRefused, openGithub } from '../../../platform/github/client.ts'
import type { CommitReport } from '../../../platform/github/repository.ts'
import { openRepository } from '../../../platform/github/repository.ts'
import { UnusableCommit } from '../../../platform/github/tarball.ts'
import { sha256Of } from '../../../platform/secrets/digest.ts'
import type { Mutation } from '../../kernel/mutate.ts'
import { PermanentError } from '../../projects/projects/tasks.ts'
import { readFiles } from './repository-files.ts'
import { type StepInput, storeWithRun } from './runs.ts'

const LOGGED_MAX = 10

/** Stores the files of the commit with the run, so that all steps see the same files and GitHub is read once. */
export async function pullCommit(ctx: SystemCtx, { run, log }: StepInput): Promise<void> {
  const { gitConfig: git, workdir } = run
  const github = openGithub(ctx)
  if (!git || workdir === null || !github) throw new PermanentError('this installation has no GitHub App')
  const [connection] = await ctx.db.select().from(gitConnections).where(eq(gitConnections.id, git.connection_id))
  if (!connection) throw new PermanentError('the connection to the repository was removed')
  try {
    const repository = await openRepository(github, connection)
    const { skipped, ...files } = await readFiles(repository, git.commit, workdir)
    if (jsonParameterBytes(files) > JSON_PARAMETER_BYTES_MAX)
      throw new UnusableCommit(`its migrations and seed are larger than ${JSON_PARAMETER_BYTES_MAX} bytes as JSON`)
    await storeWithRun(ctx, run, { files })
    const { migrations, seed } = files
    await log(
      `${repository.name} has ${migrations.length} migrations at ${git.commit}${seed === null ? '' : ', and a seed'}`,
    )
    for (const path of skipped.slice(0, LOGGED_MAX))
      await log(`${path} is skipped: its name must be <version>_<name>.sql`)
  } catch (error) {
    const isPermanent = error instanceof UnusableCommit || error instanceof GithubRefused
    throw isPermanent ? new PermanentError(error.message, { cause: error }) : error
  }
}

async function readStoredFiles({ db }: SystemCtx, { run }: StepInput): Promise<CommitFiles> {
  const [row] = await db.select({ files: actionRuns.files }).from(actionRuns).where(eq(actionRuns.id, run.id))
  if (!row?.files) throw new PermanentError('the files of the commit were not stored')
  return row.files
}

export const readMigrations = async (ctx: SystemCtx, input: StepInput) => (await readStoredFiles(ctx, input)).migrations

/** Table in which the CLI records the seeds it has run. */
const SEEDS = 'supabase_migrations.seed_files'

/** Runs the seed once for a branch that was created for a pull request, with its first commit whose migrations succeed. */
export async function applySeed(ctx: SystemCtx, input: StepInput): Promise<void> {
  const { branch, own, run, log } = input
  if (!branch.forPullRequests) return log('no seed is run: the branch was not created for a pull request')
  const { seed } = await readStoredFiles(ctx, input)
  if (seed === null) return log('the commit has no seed')
  const path = run.workdir === '.' ? 'seed.sql' : `${run.workdir}/seed.sql`
  const session = {
    ref: own.ref,
    runnerPassword: await runnerPasswordOf(ctx, own),
    timeoutMs: ctx.config.SQL_TIMEOUT_SECONDS * 1000,
  }
  const hash = await sha256Of(seed)
  const isNew = await ctx.engine.transaction(session, async (tx) => {
    await tx.rows('CREATE SCHEMA IF NOT EXISTS supabase_migrations')
    await tx.rows(`CREATE TABLE IF NOT EXISTS ${SEEDS} (path text PRIMARY KEY, hash text NOT NULL)`)
    const recorded = await tx.rows(
      `INSERT INTO ${SEEDS} (path, hash) VALUES ($1, $2) ON CONFLICT (path) DO NOTHING RETURNING path`,
      [path, hash],
    )
    if (recorded.length > 0) await tx.run(splitStatements(seed))
    return recorded.length > 0
  })
  await log(isNew ? `${path} was run` : 'the branch was already seeded')
}

interface End {
  runId: string
  at: Date
  /** Reason of the failure; undefined if the run succeeded. */
  failure: string | undefined
}

/** Deletes the stored files and schedules the task of the Git branch, which reports the status to GitHub and finds newer commits. */
export async function endCommitRun({ tx, enqueue }: Mutation, { runId, at, failure }: End): Promise<void> {
  await tx.update(actionRuns).set({ files: null }).where(eq(actionRuns.id, runId))
  const report: CommitReport =
    failure === undefined
      ? { state: 'success', description: 'The database is up to date' }
      : { state: 'failure', description: failure }
  const scheduled = await tx
    .update(gitBranches)
    .set({ report, dueAt: at, asked: sql`${gitBranches.asked} + 1`, updatedAt: at })
    .where(eq(gitBranches.runId, runId))
    .returning({ id: gitBranches.id })
  for (const { id } of scheduled) enqueue({ type: 'git-branch', id })
}
