import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import type {
  Branch,
  BranchRestoreRequest,
  Endpoint,
  EndpointCreateRequest,
  Operation,
  OperationAction,
  Project,
  ProjectListItem,
} from '@neondatabase/api-client'
import { type Compute, createRole, emptyTables, follow, recover } from './compute.ts'
import { branchShape, endpointShape, operationShape, projectShape } from './shapes.ts'

export class Refused extends Error {
  readonly status: number
  constructor(status: number, message: string) {
    super(message)
    this.status = status
  }
}

export interface NeonBranch {
  branch: Branch
  endpoint: Endpoint | undefined
  /** Replicas by the ids of their endpoints. */
  replicas: Map<string, { endpoint: Endpoint; compute: Promise<Compute> }>
  compute: Promise<Compute>
  role: string
  database: string
  password: string
}
export interface NeonProject {
  project: Project & ProjectListItem
  branches: Map<string, NeonBranch>
  operations: Map<string, Operation>
}

export interface Behaviour {
  /** The duration of each operation. */
  operationMs: number
  /** Actions whose operations fail, once each. */
  failing: string[]
}

type Work = readonly [action: `${OperationAction}`, work: () => Promise<unknown>]

const id = (prefix: string) => `${prefix}-${randomBytes(6).toString('hex')}`

/** The state of projects, their branches and their running operations; `blank` is copied for each new project. */
export function neonState(folder: string, blank: Compute, behaviour: Behaviour) {
  const projects = new Map<string, NeonProject>()

  const find = (projectId: string): NeonProject =>
    projects.get(projectId) ?? refuse(404, `project ${projectId} not found`)
  const findBranch = (projectId: string, branchId: string): NeonBranch =>
    find(projectId).branches.get(branchId) ?? refuse(404, 'branch not found')
  const findEndpoint = (projectId: string, endpointId: string): NeonBranch & { endpoint: Endpoint } => {
    const branches = [...find(projectId).branches.values()]
    for (const branch of branches) {
      const replica = branch.replicas.get(endpointId)
      if (replica) return { ...branch, ...replica }
    }
    const found = branches.find(({ endpoint }) => endpoint?.id === endpointId)
    return (found as NeonBranch & { endpoint: Endpoint }) ?? refuse(404, 'endpoint not found')
  }

  /** Neon runs one operation in a project at a time; other requests are refused meanwhile. */
  function schedule(owner: NeonProject, branch: NeonBranch | undefined, works: readonly Work[]): Operation[] {
    const operations = works.map(([action]) =>
      operationShape({
        project_id: owner.project.id,
        ...(branch && { branch_id: branch.branch.id }),
        ...(branch?.endpoint && { endpoint_id: branch.endpoint.id }),
        action,
      }),
    )
    for (const operation of operations) owner.operations.set(operation.id, operation)
    void runAll(operations, works)
    return operations.map((operation) => ({ ...operation }))
  }

  async function runAll(operations: Operation[], works: readonly Work[]) {
    let failed = false
    for (const [n, operation] of operations.entries()) {
      set(operation, 'running')
      await delay(behaviour.operationMs)
      const at = behaviour.failing.indexOf(operation.action)
      if (at >= 0) behaviour.failing.splice(at, 1)
      failed ||= at >= 0
      await works[n]?.[1]().catch((error) => {
        failed = true
        operation.error = String(error)
      })
      set(operation, failed ? 'failed' : 'finished')
    }
  }

  function createProject(input: {
    name?: string
    region_id?: string
    pg_version?: number
    role?: string
    database?: string
  }) {
    const projectId = id('late-frost')
    const { name = projectId, region_id = 'aws-us-east-2', pg_version = 17, database = 'neondb' } = input
    const owner: NeonProject = {
      project: projectShape({ id: projectId, name, region_id, pg_version }),
      branches: new Map(),
      operations: new Map(),
    }
    const role = input.role ?? `${database}_owner`
    const main = addBranch(owner, { name: 'main', default: true }, { role, database, password: secret() })
    main.compute = blank.copyTo(join(folder, main.branch.id))
    projects.set(projectId, owner)
    const operations = schedule(owner, main, [
      ['create_timeline', () => main.compute],
      ['start_compute', async () => createRole(await main.compute, { name: role, password: main.password, database })],
    ])
    return { owner, main, operations }
  }

  const secret = () => `npg_${randomBytes(12).toString('hex')}`

  type Access = Pick<NeonBranch, 'role' | 'database' | 'password'>

  function addBranch(owner: NeonProject, of: Partial<Branch>, access: Access): NeonBranch {
    const { id: project_id, region_id } = owner.project
    const branch = branchShape({ id: id('br'), project_id, name: id('branch'), default: false, ...of })
    const endpoint = endpointShape({ id: id('ep'), project_id, branch_id: branch.id, region_id })
    const added: NeonBranch = { branch, endpoint, replicas: new Map(), compute: new Promise(() => {}), ...access }
    owner.branches.set(branch.id, added)
    return added
  }

  function createBranch(
    projectId: string,
    input: { parent_id?: string; name?: string; init_source?: string; endpoint: boolean },
  ) {
    const owner = find(projectId)
    const parentId =
      input.parent_id ?? [...owner.branches.values()].find(({ branch }) => branch.default)?.branch.id ?? ''
    const parent = findBranch(projectId, parentId)
    const schemaOnly = input.init_source === 'schema-only'
    const { role, database, password } = parent
    const of = { ...(input.name && { name: input.name }), ...(!schemaOnly && { parent_id: parentId }) }
    const added = addBranch(
      owner,
      { ...of, init_source: input.init_source ?? 'parent-data' },
      { role, database, password },
    )
    if (!input.endpoint) added.endpoint = undefined
    // The copy has the parent's state at the moment of the request.
    added.compute = parent.compute.then((compute) => compute.copyTo(join(folder, added.branch.id)))
    const operations = schedule(owner, added, [
      ['create_branch', () => added.compute],
      ['start_compute', async () => (schemaOnly ? emptyTables(await added.compute) : (await added.compute).awake())],
    ])
    return { added, operations }
  }

  function createReplica(
    projectId: string,
    { branch_id: branchId, name, ...limits }: EndpointCreateRequest['endpoint'],
  ) {
    const owner = find(projectId)
    const branch = findBranch(projectId, branchId)
    const { region_id } = owner.project
    const endpoint = endpointShape({ id: id('ep'), project_id: projectId, branch_id: branchId, region_id })
    Object.assign(endpoint, limits, { type: 'read_only', ...(name && { name }) })
    const compute = branch.compute.then((primary) => follow(primary, join(folder, endpoint.id)))
    branch.replicas.set(endpoint.id, { endpoint, compute })
    return { endpoint, operations: schedule(owner, { ...branch, endpoint }, [['start_compute', () => compute]]) }
  }

  function deleteReplica(projectId: string, endpointId: string) {
    const found = findEndpoint(projectId, endpointId)
    find(projectId).branches.get(found.branch.id)?.replicas.delete(endpointId)
    const remove = async () => (await found.compute).remove()
    return { endpoint: found.endpoint, operations: schedule(find(projectId), found, [['suspend_compute', remove]]) }
  }

  const endpointsOf = (projectId: string): Endpoint[] =>
    [...find(projectId).branches.values()].flatMap(({ endpoint, replicas }) => [
      ...Array.from(replicas.values(), (replica) => replica.endpoint),
      ...(endpoint ? [endpoint] : []),
    ])

  async function removeComputes({ compute, replicas }: NeonBranch): Promise<void> {
    for (const replica of replicas.values()) await (await replica.compute).remove()
    await (await compute).remove()
  }

  /**
   * Restores a branch: its old state stays under another name and becomes the parent; the branch's own id and
   * endpoint stay.
   */
  function restoreBranch(projectId: string, branchId: string, request: BranchRestoreRequest) {
    const { source_branch_id: sourceId, source_timestamp: timestamp, preserve_under_name: keptName } = request
    const owner = find(projectId)
    const [restored, source] = [findBranch(projectId, branchId), findBranch(projectId, sourceId)]
    const others = [...owner.branches.values()]
    const children = others.filter(({ branch }) => branch.parent_id === branchId)
    if (!keptName && (children.length > 0 || source === restored)) refuse(400, 'preserve_under_name is required')
    if (others.some(({ branch }) => branch.name === keptName)) refuse(409, 'branch name already exists')
    const at = new Date(timestamp ?? Date.now())
    const { created_at: createdAt, history_retention_seconds: keptSeconds } = owner.project
    const earliest = Math.max(Date.parse(createdAt), Date.now() - keptSeconds * 1_000)
    if (at.getTime() < earliest || at.getTime() > Date.now()) refuse(400, 'the timestamp is outside of the history')
    const log = source.compute
    if (keptName) {
      const { parent_id } = restored.branch
      const of = {
        id: id('br'),
        project_id: projectId,
        name: keptName,
        default: false,
        ...(parent_id && { parent_id }),
      }
      const kept = { ...restored, branch: branchShape(of), endpoint: undefined, replicas: new Map() }
      owner.branches.set(kept.branch.id, kept)
      for (const { branch } of [...children, restored]) branch.parent_id = kept.branch.id
    }
    restored.compute = log.then((compute) => recover(blank, compute, { folder: join(folder, id('restored')), at }))
    const operations = schedule(owner, restored, [
      ['create_branch', () => restored.compute],
      ['start_compute', async () => (await restored.compute).awake()],
    ])
    return { branch: restored.branch, operations }
  }

  async function deleteProject(projectId: string): Promise<Project & ProjectListItem> {
    const owner = find(projectId)
    projects.delete(projectId)
    for (const branch of owner.branches.values()) await removeComputes(branch)
    return owner.project
  }

  function deleteBranch(projectId: string, branchId: string) {
    const owner = find(projectId)
    const removed = owner.branches.get(branchId)
    if (!removed) return undefined
    const children = [...owner.branches.values()].filter(({ branch }) => branch.parent_id === branchId)
    if (children.length > 0) throw new Refused(422, 'cannot delete a branch that has child branches')
    if (removed.branch.default) throw new Refused(422, 'cannot delete the default branch')
    owner.branches.delete(branchId)
    const operations = schedule(owner, removed, [['delete_timeline', () => removeComputes(removed)]])
    return { branch: removed.branch, operations }
  }

  return {
    projects,
    find,
    findBranch,
    findEndpoint,
    schedule,
    createProject,
    createBranch,
    createReplica,
    deleteReplica,
    endpointsOf,
    restoreBranch,
    deleteProject,
    deleteBranch,
  }
}
export type NeonState = ReturnType<typeof neonState>

export const isBusy = ({ operations }: NeonProject): boolean =>
  [...operations.values()].some(({ status }) => ['scheduling', 'running'].includes(status))

function set(operation: Operation, status: `${Operation['status']}`) {
  operation.status = status as Operation['status']
}

function refuse(status: number, message: string): never {
  throw new Refused(status, message)
}
