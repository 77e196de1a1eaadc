import type {
  BranchCreateRequest,
  BranchesResponse,
  BranchOperations,
  BranchResponse,
  BranchRestoreRequest,
  ConnectionURIResponse,
  ConnectionURIsResponse,
  EndpointCreateRequest,
  EndpointOperations,
  EndpointResponse,
  EndpointsResponse,
  EndpointUpdateRequest,
  GetConnectionUriParams,
  ListProjectBranchesParams,
  ListProjectsParams,
  Operation,
  OperationResponse,
  OperationsResponse,
  PaginationResponse,
  ProjectCreateRequest,
  ProjectResponse,
  ProjectsResponse,
} from '@neondatabase/api-client'
import { EngineRefusal, EngineUnavailable } from '../engine-errors.ts'

export interface NeonAccount {
  /** Base URL of Neon's API, version 2. */
  apiUrl: string
  apiKey: string
  /** Owner of the Neon projects; not needed with an organization's own key. */
  organizationId?: string | undefined
}

/** Neon refused the request, or did not answer in time. */
export class NeonFailure extends EngineUnavailable {
  /** HTTP status; absent if there was no answer. */
  readonly status: number | undefined

  constructor(message: string, { status, cause }: { status?: number | undefined; cause?: unknown } = {}) {
    super(message, { cause })
    this.status = status
  }
}

const REFUSALS: readonly (number | undefined)[] = [400, 402, 403, 406, 422]

/** Maps an invalid request, or one beyond the account's plan, to `EngineRefusal`. */
export function throwRefusal(error: unknown): never {
  if (!(error instanceof NeonFailure) || !REFUSALS.includes(error.status)) throw error
  throw new EngineRefusal(error.message, { cause: error })
}

export const isNotFound = (error: unknown): boolean => error instanceof NeonFailure && error.status === 404

const REQUEST_MS_MAX = 30_000
/** Time for which a request is retried while Neon is busy. */
const RETRY_MS_MAX = 60_000
const WAIT_MS_MIN = 250
const WAIT_MS_MAX = 8_000
/** Longest wait for an operation. It continues at Neon, and the task that waited is retried. */
const OPERATION_MS_MAX = 300_000
/** Number of operations to list, the newest first. */
const OPERATIONS_MAX = 100
const POLL_MS_MIN = 100
const POLL_MS_MAX = 2_000

interface NeonRequest {
  method: 'GET' | 'POST' | 'PATCH' | 'DELETE'
  path: string
  query?: object
  body?: object
  /** Whether a request is retried if Neon may have executed it. The default is true for all methods except POST. */
  isIdempotent?: boolean
}

export type NeonApi = ReturnType<typeof neonApi>

/**
 * Client of Neon's API, with the types that Neon publishes. `checkFence` throws if another caller has taken over. It is called
 * before every attempt of a mutation, because a retry may be a minute late, and after waiting for operations.
 */
export function neonApi(account: NeonAccount, checkFence: () => Promise<void> = async () => {}) {
  const organization = account.organizationId === undefined ? {} : { org_id: account.organizationId }
  const ask = <Reply>(method: NeonRequest['method'], path: string, more: Partial<NeonRequest> = {}) =>
    sendWithRetry<Reply>(account, { ...more, method, path }, checkFence)
  const branchesOf = (projectId: string) => `/projects/${projectId}/branches`
  const endpointsOf = (projectId: string) => `/projects/${projectId}/endpoints`
  return {
    listProjects: (query: ListProjectsParams) =>
      ask<ProjectsResponse & PaginationResponse>('GET', '/projects', { query: { ...organization, ...query } }),
    createProject: ({ project }: ProjectCreateRequest) => {
      const body: ProjectCreateRequest = { project: { ...organization, ...project } }
      return ask<ProjectResponse & BranchResponse & EndpointsResponse & OperationsResponse & ConnectionURIsResponse>(
        'POST',
        '/projects',
        { body },
      )
    },
    getProject: (projectId: string) => ask<ProjectResponse>('GET', `/projects/${projectId}`),
    deleteProject: (projectId: string) => ask<ProjectResponse>('DELETE', `/projects/${projectId}`),

    listBranches: (projectId: string, query: Omit<ListProjectBranchesParams, 'projectId'>) =>
      ask<BranchesResponse>('GET', branchesOf(projectId), { query }),
    getBranch: (projectId: string, branchId: string) =>
      ask<BranchResponse>('GET', `${branchesOf(projectId)}/${branchId}`),
    createBranch: (projectId: string, body: BranchCreateRequest) =>
      ask<BranchResponse & EndpointsResponse & OperationsResponse>('POST', branchesOf(projectId), { body }),
    restoreBranch: (projectId: string, branchId: string, body: BranchRestoreRequest) =>
      ask<BranchOperations>('POST', `${branchesOf(projectId)}/${branchId}/restore`, { body }),
    deleteBranch: (projectId: string, branchId: string) =>
      ask<BranchOperations | undefined>('DELETE', `${branchesOf(projectId)}/${branchId}`),

    listEndpoints: (projectId: string) => ask<EndpointsResponse>('GET', endpointsOf(projectId)),
    getEndpoint: (projectId: string, endpointId: string) =>
      ask<EndpointResponse>('GET', `${endpointsOf(projectId)}/${endpointId}`),
    createEndpoint: (projectId: string, body: EndpointCreateRequest) =>
      ask<EndpointOperations>('POST', endpointsOf(projectId), { body }),
    deleteEndpoint: (projectId: string, endpointId: string) =>
      ask<EndpointOperations | undefined>('DELETE', `${endpointsOf(projectId)}/${endpointId}`),
    updateEndpoint: (projectId: string, endpointId: string, body: EndpointUpdateRequest) =>
      ask<EndpointOperations>('PATCH', `${endpointsOf(projectId)}/${endpointId}`, { body }),
    restartEndpoint: (projectId: string, endpointId: string) =>
      ask<EndpointOperations>('POST', `${endpointsOf(projectId)}/${endpointId}/restart`, { isIdempotent: true }),

    connectionUri: (projectId: string, query: Omit<GetConnectionUriParams, 'projectId'>) =>
      ask<ConnectionURIResponse>('GET', `/projects/${projectId}/connection_uri`, { query }),

    listOperations: (projectId: string) =>
      ask<OperationsResponse>('GET', `/projects/${projectId}/operations`, { query: { limit: OPERATIONS_MAX } }),

    /** Waits for all operations to succeed. */
    async waitForOperations(operations: readonly Operation[]): Promise<void> {
      const until = Date.now() + OPERATION_MS_MAX
      for (const { project_id: projectId, id } of operations) {
        for (let waitMs = POLL_MS_MIN; ; waitMs = Math.min(waitMs * 1.5, POLL_MS_MAX)) {
          const { operation } = await ask<OperationResponse>('GET', `/projects/${projectId}/operations/${id}`)
          if (hasSucceeded(operation)) break
          if (Date.now() > until) throw new NeonFailure(`Neon is still running ${operation.action}: wait until it ends`)
          await delay(waitMs)
        }
      }
      await checkFence()
    },
  }
}

export const SUCCEEDED_STATUSES: readonly string[] = ['finished', 'skipped']
const FAILED_STATUSES: readonly string[] = ['failed', 'error', 'cancelled']

/** An operation failed at Neon. */
export class OperationFailed extends NeonFailure {}

export const hasFailed = ({ status }: Operation): boolean => FAILED_STATUSES.includes(status)

function hasSucceeded(operation: Operation): boolean {
  const { action, status, error } = operation
  if (hasFailed(operation)) throw new OperationFailed(`Neon could not ${action}: ${error ?? status}`)
  return SUCCEEDED_STATUSES.includes(status)
}

async function sendWithRetry<Reply>(
  account: NeonAccount,
  request: NeonRequest,
  checkFence: () => Promise<void>,
): Promise<Reply> {
  const until = Date.now() + RETRY_MS_MAX
  for (let waitMs = WAIT_MS_MIN; ; waitMs = Math.min(waitMs * 2, WAIT_MS_MAX)) {
    if (request.method !== 'GET') await checkFence()
    const outcome = await sendOnce<Reply>(account, request)
    if ('reply' in outcome) return outcome.reply
    const pauseMs = Math.max(waitMs * (0.75 + Math.random() / 2), outcome.waitMs)
    if (!isRetryable(request, outcome.failure) || Date.now() + pauseMs > until) throw outcome.failure
    await delay(pauseMs)
  }
}

/** After 423 and 429 Neon has done nothing. After other errors of its own, the outcome is unknown. */
function isRetryable({ method, isIdempotent = method !== 'POST' }: NeonRequest, { status }: NeonFailure): boolean {
  return status === 423 || status === 429 || (isIdempotent && (status === undefined || status >= 500))
}

type Outcome<Reply> = { reply: Reply } | { failure: NeonFailure; waitMs: number }

async function sendOnce<Reply>(
  { apiUrl, apiKey }: NeonAccount,
  { method, path, query, body }: NeonRequest,
): Promise<Outcome<Reply>> {
  const url = new URL(apiUrl.replace(/\/$/, '') + path)
  for (const [name, value] of Object.entries(query ?? {})) url.searchParams.set(name, String(value))
  const headers = {
    authorization: `Bearer ${apiKey}`,
    accept: 'application/json',
    ...(body && { 'content-type': 'application/json' }),
  }
  try {
    const signal = AbortSignal.timeout(REQUEST_MS_MAX)
    const response = await fetch(url, { method, headers, signal, ...(body && { body: JSON.stringify(body) }) })
    const text = await response.text()
    if (response.ok) return { reply: (text === '' ? undefined : JSON.parse(text)) as Reply }
    const { status } = response
    const failure = new NeonFailure(`Neon answered ${status}: ${messageIn(text)}`, { status })
    return { failure, waitMs: Number(response.headers.get('retry-after') ?? 0) * 1_000 || 0 }
  } catch (error) {
    return { failure: new NeonFailure('Neon does not answer', { cause: error }), waitMs: 0 }
  }
}

function messageIn(text: string): string {
  try {
    return String(JSON.parse(text).message ?? 'no reason given')
  } catch {
    return 'no reason given'
  }
}

const delay = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))
