import { createHmac, randomUUID } from 'node:crypto'
import { and, eq } from 'drizzle-orm'
import { expect, inject, vi } from 'vitest'
import { gitConnections } from '../../src/model/tables/index.ts'
import { as, control, type TestOrganization } from './api.ts'
import type { Fault, Status, UserActions } from './github-server/repositories.ts'
import { WAIT_MS } from './wait.ts'

const github = inject('github')

/** Performs an action of a user at GitHub. */
async function act<A extends keyof UserActions>(
  action: A,
  input: Parameters<UserActions[A]>[0],
): Promise<ReturnType<UserActions[A]>> {
  const reply = await fetch(`${github.GITHUB_API_URL}/_/${action}`, { method: 'POST', body: JSON.stringify(input) })
  expect(reply.status).toBe(200)
  return (await reply.json()) as ReturnType<UserActions[A]>
}

interface Sent {
  delivery?: string
  signature?: string
  installationId?: number
  headers?: Record<string, string>
}

export const signatureOf = (body: string, secret = github.GITHUB_WEBHOOK_SECRET) =>
  `sha256=${createHmac('sha256', secret).update(body).digest('hex')}`

/** Delivers each event from an address of its own, because guesses of signatures are counted. */
export function deliver(event: string, payload: unknown, { delivery = randomUUID(), signature, headers }: Sent = {}) {
  const raw = typeof payload === 'string' ? payload : JSON.stringify(payload)
  return as(undefined).send('POST', '/integrations/github/webhook', {
    raw,
    headers: {
      'content-type': 'application/json',
      'x-github-event': event,
      'x-github-delivery': delivery,
      'x-hub-signature-256': signature ?? signatureOf(raw),
      'x-test-address': randomUUID(),
      ...headers,
    },
  })
}

/** Makes a repository in which the App is installed. */
export async function newRepository(more: { installationId?: number } = {}) {
  const name = `acme-${randomUUID().slice(0, 8)}/app`
  const { id, installationId } = await act('add', { name, ...more })
  const place = () => ({
    repository: { id, full_name: name, default_branch: 'main' },
    installation: { id: installationId },
  })
  const repository = {
    id,
    name,
    installationId,
    commit: async (branch: string, files: Record<string, string>) => (await act('commit', { id, branch, files })).sha,
    deleteBranch: (branch: string) => act('deleteBranch', { id, branch }),
    pull: async (branch: string, more: { files?: string[]; fork?: boolean } = {}) =>
      (await act('pull', { id, branch, ...more })).number,
    setPull: (pull: number, state: 'open' | 'closed') => act('setPull', { id, pull, state }),
    rename: (to: string) => act('rename', { id, name: to }),
    fault: (match: string, status: number, times = 1, more: Pick<Fault, 'headers' | 'message'> = {}) =>
      act('fault', { id, match, status, times, ...more }),
    /** Holds the requests that match, until it is called without an argument. */
    hold: (match?: string) => act('hold', { id, match }),
    callsOf: async () => (await act('inspect', { id })).calls,
    /** Returns the statuses of a commit, in the order in which GitHub received them. */
    statusesOf: async (sha: string): Promise<Status[]> =>
      (await act('inspect', { id })).statuses.filter((status) => status.sha === sha),
    tellPush: (branch: string, sent: Sent = {}) => deliver('push', { ref: `refs/heads/${branch}`, ...place() }, sent),
    tellPull: (
      action: string,
      number: number,
      branch: string,
      { fork = false, ...sent }: Sent & { fork?: boolean } = {},
    ) =>
      deliver(
        'pull_request',
        { action, number, pull_request: { head: { ref: branch, repo: { id: fork ? 1 : id } } }, ...place() },
        sent,
      ),
    /** Commits, and sends the event. */
    push: async (branch: string, files: Record<string, string>) => {
      const sha = await repository.commit(branch, files)
      expect(await repository.tellPush(branch)).toMatchObject({ status: 202 })
      return sha
    },
  }
  return repository
}
export type TestRepository = Awaited<ReturnType<typeof newRepository>>

type Fields = Partial<typeof gitConnections.$inferInsert>

/** Inserts a connection as `npm run admin -- connection add` does, and returns its id. */
export async function connect(
  { id: organizationId }: Pick<TestOrganization, 'id'>,
  projectRef: string,
  { id: repositoryId, installationId, name: repositoryName }: TestRepository,
  fields: Fields = {},
  db = control,
): Promise<string> {
  const at = new Date()
  const id = randomUUID()
  await db.insert(gitConnections).values({
    id,
    organizationId,
    projectRef,
    installationId,
    repositoryId,
    repositoryName,
    workdir: 'supabase',
    changesOnly: false,
    branchLimit: 5,
    newBranchPerPr: true,
    createdAt: at,
    updatedAt: at,
    ...fields,
  })
  return id
}

export const disconnect = (projectRef: string) =>
  control.delete(gitConnections).where(and(eq(gitConnections.projectRef, projectRef)))

/** Waits until this is the last status of a commit at GitHub. */
export const untilCommitStatus = (repository: TestRepository, sha: string, state: string) =>
  vi.waitFor(
    async () => {
      const last = (await repository.statusesOf(sha)).at(-1)
      expect(last?.state, JSON.stringify(last)).toBe(state)
    },
    { timeout: WAIT_MS, interval: 100 },
  )
