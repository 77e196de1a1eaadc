import type { ProjectAddress } from '../gateway/project-address.ts'

export interface WorkerAddress {
  ref: string
  name: string
  /** Path that the caller requested, without the query. */
  path: string
  /** Path of the worker for the caller; the worker sees itself at the root. */
  prefix: string
  /** URL that the worker sees. */
  url: string
  /** Whether other projects and the management API share the origin. */
  isShared: boolean
}

/** Clients use both spellings. */
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
