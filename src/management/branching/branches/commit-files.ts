import { eq, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { splitStatements } from '../../../engine/split-statements.ts'
import { runnerPasswordOf } from '../../../model/secrets/project.ts'
import { actionRuns, type CommitFiles, gitBranches, gitConnections } from '../../../model/tables/index.ts'
import { GithubRefused, openGithub } from '../../../platform/github/client.ts'
import type { CommitReport } from '../../../platform/github/repository.ts'
import { openRepository } from '../../../platform/github/repository.ts'
import { UnusableCommit } from '../../../platform/github/tarball.ts'
import { sha256Of } from '../../../platform/secrets/digest.ts'
import type { Mutation } from '../../kernel/mutate.ts'
import { PermanentError } from '../../projects/projects/tasks.ts'
import { readFiles } from '../connections/repository-files.ts'
import type { Site } from './jobs.ts'

const NAMED_MAX = 10

/** What the commit has is kept with the run: all its steps see the same, and GitHub is asked once. */
export async function pullCommit(ctx: SystemCtx, { run, log }: Site): Promise<void> {
  const { gitConfig: git, workdir } = run
  const github = openGithub(ctx)
  if (!git || workdir === null || !github) throw new PermanentError('this installation has no GitHub App')
  const [connection] = await ctx.db.select().from(gitConnections).where(eq(gitConnections.id, git.connection_id))
  if (!connection) throw new PermanentError('the connection to the repository was removed')
  try {
    const repository = await openRepository(github, connection)
    const { passedOver, ...files } = await readFiles(repository, git.commit, workdir)
    await ctx.db.update(actionRuns).set({ files }).where(eq(actionRuns.id, run.id))
    const { migrations, seed } = files
    await log(
      `${repository.name} has ${migrations.length} migrations at ${git.commit}${seed === null ? '' : ', and a seed'}`,
    )
    for (const path of passedOver.slice(0, NAMED_MAX))
      await log(`${path} is passed over: it is not called <version>_<name>.sql`)
  } catch (error) {
    const wontHeal = error instanceof UnusableCommit || error instanceof GithubRefused
    throw wontHeal ? new PermanentError(error.message, { cause: error }) : error
  }
}

async function filesOf({ db }: SystemCtx, { run }: Site): Promise<CommitFiles> {
  const [row] = await db.select({ files: actionRuns.files }).from(actionRuns).where(eq(actionRuns.id, run.id))
  if (!row?.files) throw new PermanentError('nothing was kept of the commit')
  return row.files
}

export const migrationsOf = async (ctx: SystemCtx, site: Site) => (await filesOf(ctx, site)).migrations

/** The command line's table, by which it knows seeds that were run. */
const SEEDS = 'supabase_migrations.seed_files'

/** Once for each branch that was made for pull requests: with the first of its commits whose migrations pass. */
export async function seedOf(ctx: SystemCtx, site: Site): Promise<void> {
  const { branch, own, run, log } = site
  if (!branch.forPullRequests) return log('no seed, as it is no branch of pull requests')
  const { seed } = await filesOf(ctx, site)
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
  await log(isNew ? `${path} was run` : 'the branch was seeded before')
}

interface End {
  runId: string
  at: Date
  /** Why it failed; undefined where it did not. */
  failure: string | undefined
}

/** GitHub is told by who follows its branch, who may also find that it has moved on meanwhile. */
export async function endOfCommit({ tx, enqueue }: Mutation, { runId, at, failure }: End): Promise<void> {
  await tx.update(actionRuns).set({ files: null }).where(eq(actionRuns.id, runId))
  const report: CommitReport =
    failure === undefined
      ? { state: 'success', description: 'The database is up to date' }
      : { state: 'failure', description: failure }
  const followed = await tx
    .update(gitBranches)
    .set({ report, dueAt: at, asked: sql`${gitBranches.asked} + 1`, updatedAt: at })
    .where(eq(gitBranches.runId, runId))
    .returning({ id: gitBranches.id })
  for (const { id } of followed) enqueue({ type: 'git-branch', id })
}
