import * as z from 'zod'
import { callGithub, type Github, GithubRefused } from './client.ts'

/** Commit status to be shown on GitHub. */
export interface CommitReport {
  state: 'pending' | 'success' | 'failure' | 'error'
  description: string
}

/** A repository and a token for this repository only, which is valid for an hour. */
export interface Repository {
  github: Github
  id: number
  /** `owner/name` */
  name: string
  defaultBranch: string
  token: string
}

const RepositoryBody = z.object({ id: z.int(), full_name: z.string(), default_branch: z.string() })
const NAME = /^[\w.-]+\/[\w.-]+$/

export const isRepositoryName = (name: string): boolean => NAME.test(name) && !/(^|\/)\.{1,2}(\/|$)/.test(name)

interface RepositoryId {
  installationId: number
  repositoryId: number
}

/** Opens a repository by its id and reads its current name. Rejects with GithubRefused if the installation has lost access to it. */
export async function openRepository(
  github: Github,
  { installationId, repositoryId }: RepositoryId,
): Promise<Repository> {
  const token = await createToken(github, installationId, {
    repository_ids: [repositoryId],
    permissions: { contents: 'read', metadata: 'read', pull_requests: 'read', statuses: 'write' },
  })
  const { repositories } = await callGithub(github, '/installation/repositories?per_page=1', {
    token,
    answer: z.object({ repositories: z.array(RepositoryBody) }),
  })
  const found = repositories.find(({ id }) => id === repositoryId)
  if (!found) throw new GithubRefused(`installation ${installationId} has no access to repository ${repositoryId}`, 404)
  return { github, id: found.id, name: found.full_name, defaultBranch: found.default_branch, token }
}

/** Finds the installation of the App for a repository name. Rejects with GithubRefused if the App is not installed. */
export async function findInstallation(github: Github, name: string): Promise<RepositoryId & { name: string }> {
  const { id: installationId } = await callGithub(github, `/repos/${name}/installation`, {
    answer: z.object({ id: z.int() }),
  })
  const token = await createToken(github, installationId, { permissions: { metadata: 'read' } })
  const { id: repositoryId, full_name } = await callGithub(github, `/repos/${name}`, { token, answer: RepositoryBody })
  return { installationId, repositoryId, name: full_name }
}

async function createToken(github: Github, installationId: number, body: object): Promise<string> {
  const path = `/app/installations/${installationId}/access_tokens`
  const answer = z.object({ token: z.string().min(1) })
  return (await callGithub(github, path, { method: 'POST', body, answer })).token
}

const ignoreNotFound = (error: unknown): undefined => {
  if (!(error instanceof GithubRefused) || error.status !== 404) throw error
}

const Sha = z.string().regex(/^([0-9a-f]{40}|[0-9a-f]{64})$/)

/** Returns the head commit of a branch; undefined if the branch does not exist. */
export async function headCommitOf({ github, name, token }: Repository, branch: string): Promise<string | undefined> {
  const path = branch.split('/').map(encodeURIComponent).join('/')
  const answer = z.object({ object: z.object({ sha: Sha }) })
  const found = callGithub(github, `/repos/${name}/git/ref/heads/${path}`, { token, answer })
  return (await found.catch(ignoreNotFound))?.object.sha
}

const PullRequest = z.object({
  number: z.int(),
  state: z.string(),
  head: z.object({ ref: z.string(), repo: z.object({ id: z.int() }).nullable() }),
})
type PullRequest = z.output<typeof PullRequest>

/** Whether an open pull request is from this branch of the repository itself and not from a fork. */
const comesFrom = ({ id }: Repository, branch: string, { state, head }: PullRequest): boolean =>
  state === 'open' && head.ref === branch && head.repo?.id === id

/**
 * Returns the numbers of the open pull requests from a branch. `known` is one that a webhook has reported: it is read on its own,
 * because lists may be older than the webhook.
 */
export async function openPullRequests(
  repository: Repository,
  branch: string,
  known: number | null,
): Promise<number[]> {
  const { github, name, token } = repository
  const head = encodeURIComponent(`${name.split('/')[0]}:${branch}`)
  const listed = await callGithub(github, `/repos/${name}/pulls?state=open&head=${head}&per_page=100`, {
    token,
    answer: z.array(PullRequest),
  })
  const numbers = new Set(listed.filter((pull) => comesFrom(repository, branch, pull)).map(({ number }) => number))
  if (known === null) return Array.from(numbers)
  const one = await findPullRequest(repository, known)
  if (one && comesFrom(repository, branch, one)) numbers.add(known)
  else numbers.delete(known)
  return Array.from(numbers)
}

const findPullRequest = ({ github, name, token }: Repository, number: number): Promise<PullRequest | undefined> =>
  callGithub(github, `/repos/${name}/pulls/${number}`, { token, answer: PullRequest }).catch(ignoreNotFound)

const FILES_PER_PAGE = 100
/** GitHub lists 3,000 files of a pull request at most. */
const FILE_PAGES_MAX = 30

/** Whether a pull request changes a file for which `test` returns true. Also true if it has more files than GitHub lists. */
export async function changesFile(
  { github, name, token }: Repository,
  number: number,
  test: (path: string) => boolean,
): Promise<boolean> {
  const answer = z.array(z.object({ filename: z.string(), previous_filename: z.string().optional() }))
  for (let page = 1; page <= FILE_PAGES_MAX; page++) {
    const path = `/repos/${name}/pulls/${number}/files?per_page=${FILES_PER_PAGE}&page=${page}`
    const files = await callGithub(github, path, { token, answer })
    const paths = files.flatMap(({ filename, previous_filename: before }) => [filename, ...(before ? [before] : [])])
    if (paths.some(test)) return true
    if (files.length < FILES_PER_PAGE) return false
  }
  return true
}

/** Limit of GitHub. */
const DESCRIPTION_CHARACTERS_MAX = 140

interface Status extends CommitReport {
  /** Name of the status, one for each project that is connected to the repository. */
  context: string
  url?: string | undefined
}

/** Sets the status of a commit. */
export async function reportStatus(
  { github, name, token }: Repository,
  commit: string,
  { state, description, context, url }: Status,
): Promise<void> {
  const short = description.replaceAll(/\s+/g, ' ').slice(0, DESCRIPTION_CHARACTERS_MAX)
  await callGithub(github, `/repos/${name}/statuses/${commit}`, {
    method: 'POST',
    token,
    body: { state, description: short, context, ...(url && { target_url: url }) },
    answer: z.unknown(),
  })
}
