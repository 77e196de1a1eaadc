import type { ProjectAddress } from '../gateway/project-address.ts'

export interface FunctionAddress {
  ref: string
  slug: string
  /** As the caller asked for it, without its query. */
  path: string
  /** As the function sees it: its slug is where the path begins. */
  url: string
  /** Whether other projects and the management API share the origin. */
  isShared: boolean
}

const BASE = '/functions/v1'
/** No slug is longer. */
const PATH = /^\/functions\/v1\/([\w-]{1,128})(?:\/|$)/

/** Undefined for what names no function. */
export function functionAddressOf(url: URL, { ref, path }: ProjectAddress): FunctionAddress | undefined {
  const [, slug] = PATH.exec(path) ?? []
  if (ref === undefined || slug === undefined) return undefined
  const { origin, pathname, search } = url
  return { ref, slug, path: pathname, url: origin + path.slice(BASE.length) + search, isShared: path !== pathname }
}

/** Whether the request is for the functions of a project at all. */
export const isForFunctions = ({ ref, path }: ProjectAddress): boolean =>
  ref !== undefined && (path === BASE || path.startsWith(`${BASE}/`))
