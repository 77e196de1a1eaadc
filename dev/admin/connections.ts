import { asc, eq, sql } from 'drizzle-orm'
import { GithubConfig, withoutEmpty } from '../../src/config.ts'
import { gitBranches, gitConnections } from '../../src/model/tables/index.ts'
import { githubAppOf } from '../../src/platform/github/app.ts'
import { type Github, GithubRefused, GithubUnavailable } from '../../src/platform/github/client.ts'
import { findInstallation, isRepositoryName } from '../../src/platform/github/repository.ts'
import type { ControlDb } from '../seed.ts'
import { StartError } from '../start-error.ts'
import { change } from './change.ts'
import type { Command, Options } from './command.ts'
import { findOrganization, findUser, lockProject } from './find.ts'

const BRANCH_LIMIT_MAX = 1_000

export const connectionCommands: Record<string, Command> = {
  'connection add': {
    summary: 'Connect a project to a GitHub repository.',
    args: [],
    options:
      '--project ref --repository owner/name [--workdir supabase] [--branch-limit 3] [--new-branch-per-pr] [--changes-only] [--user username]',
    run: (db, _args, options) => addConnection(db, readConnection(options)),
  },
  'connection list': {
    summary: 'List the GitHub connections of an organization.',
    args: ['slug'],
    run: (db, [slug = '']) => listConnections(db, slug),
  },
  'connection sync': {
    summary: "Check all branches of a project's repository again, including commits that failed.",
    args: [],
    options: '--project ref',
    run: (db, _args, options) => syncConnection(db, projectOf(options)),
  },
  'connection remove': {
    summary: 'Disconnect a project from its repository.',
    args: [],
    options: '--project ref',
    run: (db, _args, options) => removeConnection(db, projectOf(options)),
  },
}

function projectOf({ project }: Options): string {
  if (project === undefined) throw new StartError('--project is missing: the ref of the project')
  return project
}

type Wanted = ReturnType<typeof readConnection>

function readConnection(options: Options) {
  const { repository, workdir = 'supabase', 'branch-limit': limit = '3', user } = options
  const ref = projectOf(options)
  if (repository === undefined) throw new StartError('--repository is missing: owner/name at GitHub')
  if (!isRepositoryName(repository)) throw new StartError(`--repository ${repository} is not of the form owner/name`)
  const branchLimit = Number(limit)
  if (!/^\d+$/.test(limit) || branchLimit > BRANCH_LIMIT_MAX)
    throw new StartError(`--branch-limit ${limit} is not a number from 0 to ${BRANCH_LIMIT_MAX}`)
  return {
    ref,
    repository,
    user,
    settings: {
      workdir: readWorkdir(workdir),
      branchLimit,
      newBranchPerPr: options['new-branch-per-pr'] ?? false,
      changesOnly: options['changes-only'] ?? false,
    },
  }
}

/** Normalizes a folder of the repository: without slashes at its ends, `.` for the root. */
function readWorkdir(given: string): string {
  const workdir = given.replace(/^(\.\/)+/, '').replace(/\/+$/, '') || '.'
  const parts = workdir.split('/')
  const isFolder = workdir === '.' || !parts.some((part) => ['', '.', '..'].includes(part))
  if (isFolder && workdir.length <= 256 && !/[\p{Cc}\\]/u.test(workdir)) return workdir
  throw new StartError(`--workdir ${given} is not a folder within the repository`)
}

function openGithub(): Github {
  const { data, error } = GithubConfig.safeParse(withoutEmpty(process.env))
  const app = data && githubAppOf(data)
  if (app) return { app, send: fetch, now: () => new Date() }
  const [issue] = error?.issues ?? []
  const why = issue ? `${issue.path.join('.')}: ${issue.message}` : 'all three of them are needed'
  throw new StartError(
    `No GitHub App: set GITHUB_APP_ID, GITHUB_APP_PRIVATE_KEY and GITHUB_WEBHOOK_SECRET to what the Worker has (${why}).`,
  )
}

async function addConnection(db: ControlDb, { ref, repository, user, settings }: Wanted): Promise<string> {
  const userId = user === undefined ? null : (await findUser(db, user)).id
  const place = await findInstallation(openGithub(), repository).catch((error) => {
    if (!(error instanceof GithubRefused || error instanceof GithubUnavailable)) throw error
    throw new StartError(`${repository}: ${error.message}. Is the App installed there?`)
  })
  return change(db, async ({ tx, trace }) => {
    const { organizationId, parentRef } = await lockProject(tx, ref)
    if (parentRef !== null) throw new StartError(`${ref} is a branch: connect its parent, ${parentRef}`)
    const { installationId, repositoryId, name: repositoryName } = place
    const at = new Date()
    const added = await tx
      .insert(gitConnections)
      .values({
        organizationId,
        projectRef: ref,
        installationId,
        repositoryId,
        repositoryName,
        userId,
        createdAt: at,
        updatedAt: at,
        ...settings,
      })
      .onConflictDoNothing()
      .returning({ id: gitConnections.id })
    if (added.length === 0)
      throw new StartError(
        `${ref} follows a repository already: end that first with \`connection remove --project ${ref}\``,
      )
    const detail = { repository: repositoryName, repository_id: repositoryId, ...settings }
    await trace({ action: 'connection.add', organizationId, projectRef: ref, detail })
    return `${ref} follows ${repositoryName} from its next push on`
  })
}

async function listConnections(db: ControlDb, slug: string): Promise<string> {
  const { id } = await findOrganization(db, slug)
  const rows = await db
    .select()
    .from(gitConnections)
    .where(eq(gitConnections.organizationId, id))
    .orderBy(asc(gitConnections.projectRef))
  const lines = rows.map(({ projectRef, repositoryName, workdir, branchLimit, newBranchPerPr, changesOnly }) =>
    [
      projectRef,
      repositoryName,
      workdir,
      newBranchPerPr ? `${branchLimit} branches for pull requests` : 'no branches for pull requests',
      ...(changesOnly ? ['changes only'] : []),
    ].join('  '),
  )
  return lines.join('\n') || 'no connections'
}

/** Makes the Worker's sweeper check all branches again, including commits that failed. */
const syncConnection = (db: ControlDb, ref: string): Promise<string> =>
  change(db, async ({ tx, trace }) => {
    const connection = await findConnection(tx, ref)
    const at = new Date()
    const due = await tx
      .update(gitBranches)
      .set({ commit: null, dueAt: at, asked: sql`${gitBranches.asked} + 1`, attempts: 0, updatedAt: at })
      .where(eq(gitBranches.connectionId, connection.id))
      .returning({ name: gitBranches.name })
    await trace({ action: 'connection.sync', organizationId: connection.organizationId, projectRef: ref })
    const names = due.map(({ name }) => name).sort()
    return names.length === 0 ? 'GitHub has not reported a branch yet' : `checks ${names.join(', ')} within a minute`
  })

const removeConnection = (db: ControlDb, ref: string): Promise<string> =>
  change(db, async ({ tx, trace }) => {
    const { id, organizationId, repositoryName } = await findConnection(tx, ref)
    await tx.delete(gitConnections).where(eq(gitConnections.id, id))
    await trace({
      action: 'connection.remove',
      organizationId,
      projectRef: ref,
      detail: { repository: repositoryName },
    })
    return `${ref} no longer follows ${repositoryName}; its branches stay`
  })

async function findConnection(tx: Pick<ControlDb, 'select'>, ref: string) {
  const [connection] = await tx.select().from(gitConnections).where(eq(gitConnections.projectRef, ref)).for('update')
  if (!connection) throw new StartError(`${ref} follows no repository`)
  return connection
}
