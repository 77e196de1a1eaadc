import type { ProjectAddress } from '../gateway/project-address.ts'

export interface WorkerAddress {
  ref: string
  name: string
  /** As the caller asked for it, without its query. */
  path: string
  /** Where the worker is for the caller; it sees itself at the root. */
  prefix: string
  /** As the worker sees it. */
  url: string
  /** Whether other projects and the management API share the origin. */
  isShared: boolean
}

/** Clients know both spellings. */
const PATH = /^\/(?:workers|compute)\/v1\/([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)(?=\/|$)/

export function workerAddressOf(
  { origin, pathname, search }: URL,
  { ref, path }: ProjectAddress,
): WorkerAddress | undefined {
  const [own, name] = PATH.exec(path) ?? []
  if (ref === undefined || own === undefined || name === undefined) return undefined
  const below = path.slice(own.length)
  return {
    ...{ ref, name, path: pathname, prefix: pathname.slice(0, pathname.length - below.length) },
    url: origin + (below || '/') + search,
    isShared: path !== pathname,
  }
}
