import { mkdtempSync, rmSync } from 'node:fs'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import type {
  BranchCreateRequest,
  BranchRestoreRequest,
  EndpointCreateRequest,
  EndpointUpdateRequest,
  ProjectCreateRequest,
} from '@neondatabase/api-client'
import { guardChildren } from '../../../dev/guard-children.ts'
import { listenOnFreePort } from '../listen.ts'
import { openCompute, prepareCluster } from './compute.ts'
import { startGateway } from './gateway.ts'
import { readPublished } from './published.ts'
import { type Behaviour, isBusy, type NeonBranch, type NeonState, neonState, Refused } from './state.ts'

export const API_KEY = 'napi_of_the_tests'

/** A fault that replaces the answer of the next requests of an operation or, with `after`, follows their work. */
interface Fault {
  operation: string
  times: number
  /** The status; 0 closes the connection. */
  status: number
  headers?: Record<string, string>
  after?: boolean
}

export type NeonServer = Awaited<ReturnType<typeof startNeonServer>>

/** Starts Neon on this machine: its API as it is published, and a Postgres cluster for each branch. */
export async function startNeonServer() {
  guardChildren()
  const folder = mkdtempSync(join(tmpdir(), 'pilothouse-neon-'))
  const [published, blank] = await Promise.all([readPublished(), blankCluster(join(folder, 'blank'))])
  const behaviour: Behaviour = { operationMs: 5, failing: [] }
  const state = neonState(folder, blank, behaviour)
  const faults: Fault[] = []
  /** The ids of the requested operations, in order. */
  const calls: string[] = []
  /** Requests and replies that differ from the published schemas. */
  const violations: string[] = []
  const gateway = await startGateway((host) => route(state, host))

  async function answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const url = new URL(req.url ?? '/', 'http://neon')
    const operation = published.find(req.method ?? '', url.pathname.replace(/^\/api\/v2/, ''))
    if (!operation) return reply(res, 404, { code: '', message: 'no such operation' })
    const body = (await text(req)) || undefined
    const input = body && JSON.parse(body)
    calls.push(operation.id)
    const wrong = operation.requestProblem(url.searchParams, input)
    if (wrong) violations.push(`${operation.id}: ${wrong}`)
    const fault = faults.find((each) => each.operation === operation.id && each.times > 0)
    if (fault) fault.times -= 1
    if (fault && !fault.after) return fail(res, fault)
    const [status, result] = await perform()
    if (fault) return fail(res, fault)
    const unlike = operation.replyProblem(status, result)
    if (unlike) violations.push(`${operation.id}: ${unlike}`)
    reply(res, status, result)

    async function perform(): Promise<[number, unknown]> {
      try {
        if (req.headers.authorization !== `Bearer ${API_KEY}`) throw new Refused(401, 'authentication required')
        if (wrong) throw new Refused(400, wrong)
        const { ids, id } = operation as NonNullable<typeof operation>
        return await performCall({ state, id, ids, query: url.searchParams, input })
      } catch (error) {
        if (!(error instanceof Refused)) throw error
        return [error.status, { code: '', message: error.message }]
      }
    }
  }

  const server = createServer((req, res) => {
    answer(req, res).catch((error) => {
      violations.push(String(error?.stack ?? error))
      reply(res, 500, { code: '', message: String(error) })
    })
  })
  const port = await listenOnFreePort(server)

  return {
    url: `http://127.0.0.1:${port}/api/v2`,
    proxy: gateway.url,
    behaviour,
    calls,
    violations,
    projects: state.projects,
    project(name: string) {
      const found = [...state.projects.values()].find(({ project }) => project.name === name)
      if (!found) throw new Error(`there is no project ${name}`)
      return found.project
    },
    createBranch: state.createBranch,
    deleteBranch: state.deleteBranch,
    isBusy: (projectId: string) => isBusy(state.find(projectId)),
    createProject: (name: string) =>
      state.createProject({ name, role: 'pilothouse', database: 'pilothouse' }).operations,
    fault(given: Partial<Fault> & Pick<Fault, 'operation' | 'status'>): Fault {
      const fault = { times: 1, ...given }
      faults.push(fault)
      return fault
    },
    vanish: state.deleteProject,
    /** Returns the port at which a client reaches the compute of a host. */
    port: async (host: string) => (await route(state, host)).port,
    branches: (): NeonBranch[] => [...state.projects.values()].flatMap(({ branches }) => [...branches.values()]),
    async stop() {
      server.close()
      server.closeAllConnections()
      await gateway.stop()
      for (const id of [...state.projects.keys()]) await state.deleteProject(id)
      await blank.remove()
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

async function blankCluster(folder: string) {
  const compute = openCompute(folder)
  await compute.awake()
  await prepareCluster(compute)
  await compute.suspend()
  return compute
}

async function route({ projects }: NeonState, host: string) {
  const branches = [...projects.values()].flatMap(({ branches }) => [...branches.values()])
  const found = branches.find(({ endpoint }) => endpoint && [endpoint.host, poolerHostOf(endpoint)].includes(host))
  const replica = branches
    .flatMap(({ replicas }) => [...replicas.values()])
    .find(({ endpoint }) => [endpoint.host, poolerHostOf(endpoint)].includes(host))
  if (replica && !replica.endpoint.disabled) return (await replica.compute).awake()
  if (!found?.endpoint) throw new Error("The requested endpoint could not be found, or you don't have access to it.")
  if (found.endpoint.disabled) throw new Error('The endpoint has been disabled. Enable it using Neon API and retry.')
  return (await found.compute).awake()
}

type Limits = Pick<EndpointUpdateRequest['endpoint'], 'autoscaling_limit_min_cu' | 'autoscaling_limit_max_cu'>

interface Call {
  state: NeonState
  id: string
  ids: string[]
  query: URLSearchParams
  input: unknown
}

/**
 * Runs a call: only operations that change something wait for others; each returns what the published schema
 * requires.
 */
async function performCall({
  state,
  id,
  ids: [projectId = '', otherId = ''],
  query,
  input,
}: Call): Promise<[number, unknown]> {
  const requireIdle = () => {
    if (isBusy(state.find(projectId))) throw new Refused(423, 'project already has running conflicting operations')
  }
  switch (id) {
    case 'listProjects': {
      const all = [...state.projects.values()].map(({ project }) => project)
      const search = query.get('search') ?? ''
      const found = all.filter(({ name, id }) => name.includes(search) || id.includes(search))
      return [200, { projects: found.slice(0, Number(query.get('limit') ?? 10)), applications: {}, integrations: {} }]
    }
    case 'createProject': {
      const { project } = input as ProjectCreateRequest
      const { role_name: role, database_name: database } = project.branch ?? {}
      const { owner, main, operations } = state.createProject({ ...project, role, database } as never)
      if (main.endpoint) Object.assign(main.endpoint, limitsIn(project.default_endpoint_settings))
      const uri = { connection_uri: uriOf(main), connection_parameters: parametersOf(main) }
      const created = { project: owner.project, branch: main.branch, endpoints: [main.endpoint], operations }
      return [201, { ...created, connection_uris: [uri], roles: [], databases: [] }]
    }
    case 'getProject':
      return [200, { project: state.find(projectId).project }]
    case 'restoreProjectBranch': {
      requireIdle()
      return [200, state.restoreBranch(projectId, otherId, input as BranchRestoreRequest)]
    }
    case 'deleteProject':
      return [200, { project: await state.deleteProject(projectId) }]
    case 'getProjectOperation': {
      const operation = state.find(projectId).operations.get(otherId)
      if (!operation) throw new Refused(404, 'operation not found')
      return [200, { operation }]
    }
    case 'listProjectOperations':
      return [200, { operations: [...state.find(projectId).operations.values()].reverse() }]
    case 'getConnectionURI': {
      const branch = state.findBranch(projectId, query.get('branch_id') ?? '')
      if (query.get('role_name') !== branch.role) throw new Refused(404, 'role not found')
      return [200, { uri: uriOf(branch) }]
    }
    case 'listProjectBranches': {
      const all = [...state.find(projectId).branches.values()].map(({ branch }) => branch)
      const search = query.get('search') ?? ''
      return [
        200,
        { branches: all.filter(({ name, id }) => name.includes(search) || id.includes(search)), annotations: {} },
      ]
    }
    case 'getProjectBranch':
      return [200, { branch: await measured(state.findBranch(projectId, otherId)), annotation: annotationOf(otherId) }]
    case 'createProjectBranch': {
      requireIdle()
      const { branch = {}, endpoints = [] } = input as BranchCreateRequest
      const { added, operations } = state.createBranch(projectId, { ...branch, endpoint: endpoints.length > 0 })
      if (added.endpoint) Object.assign(added.endpoint, limitsIn(endpoints[0]))
      const created = { branch: added.branch, endpoints: added.endpoint ? [added.endpoint] : [], operations }
      return [201, { ...created, roles: [], databases: [] }]
    }
    case 'deleteProjectBranch': {
      requireIdle()
      const deleted = state.deleteBranch(projectId, otherId)
      return deleted ? [200, deleted] : [204, undefined]
    }
    case 'listProjectEndpoints': {
      return [200, { endpoints: state.endpointsOf(projectId) }]
    }
    case 'createProjectEndpoint': {
      requireIdle()
      return [201, state.createReplica(projectId, (input as EndpointCreateRequest).endpoint)]
    }
    case 'deleteProjectEndpoint': {
      requireIdle()
      return [200, state.deleteReplica(projectId, otherId)]
    }
    case 'getProjectEndpoint':
      return [200, { endpoint: state.findEndpoint(projectId, otherId).endpoint }]
    case 'updateProjectEndpoint': {
      requireIdle()
      const { endpoint: changes } = input as EndpointUpdateRequest
      const found = state.findEndpoint(projectId, otherId)
      const closing = changes.disabled === true && !found.endpoint.disabled
      Object.assign(found.endpoint, changes)
      const suspend = async () => (await found.compute).suspend()
      const works = [
        ...(closing ? ([['suspend_compute', suspend]] as const) : []),
        ...(changes.autoscaling_limit_max_cu ? ([['apply_config', async () => {}]] as const) : []),
      ]
      return [200, { endpoint: found.endpoint, operations: state.schedule(state.find(projectId), found, works) }]
    }
    case 'restartProjectEndpoint': {
      requireIdle()
      const found = state.findEndpoint(projectId, otherId)
      const compute = await found.compute
      const works = [
        ['suspend_compute', () => compute.suspend()],
        ['start_compute', () => compute.awake()],
      ] as const
      return [200, { endpoint: found.endpoint, operations: state.schedule(state.find(projectId), found, works) }]
    }
    default:
      throw new Error(`the local server has no ${id}`)
  }
}

const limitsIn = ({ autoscaling_limit_min_cu: min, autoscaling_limit_max_cu: max }: Limits = {}) => ({
  ...(min && { autoscaling_limit_min_cu: min }),
  ...(max && { autoscaling_limit_max_cu: max }),
})

const annotationOf = (id: string) => ({ object: { type: 'console/branch', id }, value: {} })

async function measured({ branch, compute }: NeonBranch) {
  const [row] = await (await compute).rows<{ bytes: string }>(
    'select sum(pg_database_size(oid)) as bytes from pg_database',
  )
  return { ...branch, logical_size: Number(row?.bytes) }
}

const uriOf = ({ role, password, endpoint, database }: NeonBranch) =>
  `postgresql://${role}:${password}@${endpoint?.host}/${database}?sslmode=require`

const poolerHostOf = ({ id, host }: NonNullable<NeonBranch['endpoint']>) => host.replace(id, `${id}-pooler`)

const parametersOf = ({ role, password, endpoint, database }: NeonBranch) => ({
  ...{ role, password, database },
  host: endpoint?.host ?? '',
  pooler_host: endpoint ? poolerHostOf(endpoint) : '',
})

function fail(res: ServerResponse, { status, headers }: Fault) {
  if (status === 0) res.destroy()
  else reply(res, status, { code: '', message: `injected ${status}` }, headers)
}

function reply(res: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}) {
  if (body === undefined) res.writeHead(status, headers).end()
  else res.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body))
}
