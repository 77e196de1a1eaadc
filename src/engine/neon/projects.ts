import type { Branch, Endpoint, Operation } from '@neondatabase/api-client'
import { REF } from '../../platform/identifiers.ts'
import { isNotFound, type NeonApi, NeonFailure, OperationFailed, SUCCEEDED_STATUSES, throwRefusal } from './api.ts'
import { ADMIN } from './prepare.ts'
import type { NeonState, Site } from './sites.ts'
import { limitsOf } from './sizes.ts'

interface NewProject {
  regionId: string
  postgresMajor: number
  size: string | undefined
}

/** A database that Neon has created or is creating. */
export interface CreatedDatabase {
  site: Site
  operations: readonly Operation[]
  adminPassword?: string | undefined
}

/** A database of an earlier attempt; without an endpoint it has no site. */
export interface FoundDatabase {
  site: Site | undefined
  operations: readonly Operation[]
}

/** The name at Neon, by which a project is found if the answer to its creation was lost. */
const nameOf = (ref: string): string => `pilothouse-${ref}`

const SEARCH_MAX = 400

export async function findProject(api: NeonApi, ref: string): Promise<FoundDatabase | undefined> {
  const projectId = await keepOldest(api, ref)
  return projectId === undefined ? undefined : findDatabase(api, projectId)
}

/** Keeps the oldest of several projects that concurrent attempts created, and removes the others. */
async function keepOldest(api: NeonApi, ref: string): Promise<string | undefined> {
  const [oldest, ...others] = await projectsOf(api, ref)
  for (const other of others) await removeProject(api, other)
  return oldest
}

export async function createProject(
  api: NeonApi,
  ref: string,
  { regionId, postgresMajor, size }: NewProject,
): Promise<CreatedDatabase> {
  const { project, endpoints, operations, connection_uris } = await api
    .createProject({
      project: {
        name: nameOf(ref),
        region_id: regionId,
        pg_version: postgresMajor,
        branch: { role_name: ADMIN, database_name: ADMIN },
        ...(size && { default_endpoint_settings: limitsOf(size) }),
      },
    })
    .catch(throwRefusal)
  // Another attempt may have created one at the same time.
  const oldest = await keepOldest(api, ref)
  if (oldest !== undefined && oldest !== project.id) throw new NeonFailure('Another attempt is creating it at Neon')
  const adminPassword = connection_uris[0]?.connection_parameters.password
  return { site: siteOf(project.id, endpoints[0]), operations, adminPassword }
}

/** Ids of the Neon projects with this name, the oldest first. */
async function projectsOf(api: NeonApi, ref: string): Promise<string[]> {
  const { projects, unavailable_project_ids: unknown = [] } = await api.listProjects({
    search: nameOf(ref),
    limit: SEARCH_MAX,
  })
  if (unknown.length > 0) throw new NeonFailure('Neon cannot list its projects')
  return projects
    .filter(({ name }) => name === nameOf(ref))
    .sort((one, other) => one.created_at.localeCompare(other.created_at) || one.id.localeCompare(other.id))
    .map(({ id }) => id)
}

/** The refs of all projects at Neon that carry our names. */
export async function refsOf(api: NeonApi): Promise<string[]> {
  const refs: string[] = []
  for (let cursor: string | undefined; ; ) {
    const query = { search: nameOf(''), limit: SEARCH_MAX, ...(cursor && { cursor }) }
    const { projects, pagination } = await api.listProjects(query)
    refs.push(...projects.flatMap(({ name }) => (REF.test(name.slice(nameOf('').length)) ? name.slice(-20) : [])))
    cursor = pagination?.cursor
    if (!cursor || projects.length < SEARCH_MAX) return refs
  }
}

interface NewBranch {
  projectId: string
  parentId: string
  data: boolean
  size: string | undefined
}

export async function findBranch(api: NeonApi, ref: string, projectId: string): Promise<FoundDatabase | undefined> {
  const [branch] = await branchesNamed(api, projectId, nameOf(ref))
  return branch && findDatabase(api, projectId, branch.id)
}

export async function createBranch(
  api: NeonApi,
  ref: string,
  { projectId, parentId, data, size }: NewBranch,
): Promise<CreatedDatabase> {
  const { endpoints, operations } = await api
    .createBranch(projectId, {
      branch: { name: nameOf(ref), parent_id: parentId, ...(!data && { init_source: 'schema-only' }) },
      endpoints: [{ type: READ_WRITE, ...(size && limitsOf(size)) }],
    })
    .catch(throwRefusal)
  return { site: siteOf(projectId, endpoints[0]), operations }
}

export async function branchesNamed(api: NeonApi, projectId: string, wanted: string): Promise<Branch[]> {
  return (await searchBranches(api, projectId, wanted)).filter(({ name }) => name === wanted)
}

/** Branches whose names contain the text. */
async function searchBranches(api: NeonApi, projectId: string, search: string): Promise<Branch[]> {
  return (await api.listBranches(projectId, { search, limit: SEARCH_MAX })).branches
}

/** Name of the branch in which Neon keeps the state before a restore. */
export const preservedBranchName = (ref: string, id: string): string => `${nameOf(ref)}-before-${id}`
const isPreserved = ({ name }: Branch) => /^pilothouse-[a-z]{20}-before-/.test(name)

/** Removes the stored branch, whatever its current name, and all branches with the project's name. */
export async function removeBranches(api: NeonApi, ref: string, { projectId, site }: NeonState): Promise<void> {
  if (projectId === undefined) return
  const found = (await ignoreNotFound(searchBranches(api, projectId, nameOf(ref)))) ?? []
  const named = found.filter(({ name }) => name === nameOf(ref)).map(({ id }) => id)
  const own = [...named, ...(site ? [site.branchId] : [])]
  for (const branchId of new Set([...own, ...childrenFirst(found.filter(isPreserved))])) {
    const deleted = await ignoreNotFound(api.deleteBranch(projectId, branchId))
    await api.waitForOperations(deleted?.operations ?? [])
  }
}

/**
 * Orders branches for removal: Neon requires children first, and the branch kept by a restore is the parent of its
 * successor.
 */
function childrenFirst(branches: readonly Branch[]): string[] {
  const remaining = new Map(branches.map((branch) => [branch.id, branch]))
  const ordered: string[] = []
  while (remaining.size > 0) {
    const parents = new Set(Array.from(remaining.values(), ({ parent_id }) => parent_id))
    const leaf = [...remaining.keys()].find((id) => !parents.has(id))
    if (leaf === undefined) throw new NeonFailure('Neon lists branches that are their own ancestors')
    ordered.push(leaf)
    remaining.delete(leaf)
  }
  return ordered
}

export async function removeProjects(api: NeonApi, ref: string, site: Site | undefined): Promise<void> {
  const named = await projectsOf(api, ref)
  for (const projectId of new Set([...named, ...(site ? [site.projectId] : [])])) {
    await ignoreNotFound(removeProject(api, projectId, site?.projectId === projectId ? site : undefined))
  }
}

/**
 * Refuses if there are other branches, which Neon would remove too: they are other projects or were created at Neon.
 */
async function removeProject(api: NeonApi, projectId: string, site?: Site): Promise<void> {
  const { branches } = await api.listBranches(projectId, { limit: SEARCH_MAX })
  const isOurs = (branch: Branch) => (site ? branch.id === site.branchId : branch.default) || isPreserved(branch)
  const others = branches.filter((branch) => !isOurs(branch))
  if (others.length > 0)
    throw new NeonFailure(`the Neon project still has ${others.length} other branches: remove them first`)
  await api.deleteProject(projectId)
}

export async function ignoreNotFound<Value>(request: Promise<Value>): Promise<Value | undefined> {
  try {
    return await request
  } catch (error) {
    if (isNotFound(error)) return undefined
    throw error
  }
}

/** The cast avoids bundling the client package for one constant. */
const READ_WRITE = 'read_write' as Endpoint['type']

/** The database of a branch; without a branch, of the first one in a Neon project. */
async function findDatabase(api: NeonApi, projectId: string, branchId?: string): Promise<FoundDatabase> {
  const { endpoints } = await api.listEndpoints(projectId)
  const ours = endpoints.find(
    ({ branch_id, type }) => type === READ_WRITE && (branchId === undefined || branch_id === branchId),
  )
  const site = ours && siteOf(projectId, ours)
  return { site, operations: site ? await unfinishedOf(api, site) : [] }
}

/** The database at its stored site; undefined if it no longer exists. */
export async function findStored(api: NeonApi, site: Site): Promise<FoundDatabase | undefined> {
  const operations = await ignoreNotFound(unfinishedOf(api, site))
  return operations && { site, operations }
}

/** Operations on the site that run or have failed. Others in the Neon project are not waited for. */
async function unfinishedOf(api: NeonApi, site: Site): Promise<Operation[]> {
  return (await operationsOf(api, site)).filter(({ status }) => !SUCCEEDED_STATUSES.includes(status))
}

/** Operations on the site, the newest first. */
export async function operationsOf(api: NeonApi, { projectId, branchId }: Site): Promise<Operation[]> {
  const { operations } = await api.listOperations(projectId)
  return operations.filter(({ branch_id }) => branch_id === branchId)
}

function siteOf(projectId: string, endpoint: Endpoint | undefined): Site {
  if (!endpoint) throw new OperationFailed('Neon has created no endpoint')
  return { projectId, branchId: endpoint.branch_id, endpointId: endpoint.id, host: endpoint.host }
}
