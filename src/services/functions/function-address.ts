import type { ProjectAddress } from '../gateway/project-address.ts'

export interface FunctionAddress {
  ref: string
  slug: string
  /** Path that the caller requested, without the query. */
  path: string
  /** URL that the function sees: its path begins with the slug. */
  url: string
  /** Whether other projects and the management API share the origin. */
  isShared: boolean
}

const BASE = '/functions/v1'
/** A slug has at most 128 characters. */
const PATH = /^\/functions\/v1\/([\w-]{1,128})(?:\/|$)/

/** Returns undefined if the URL does not name a function. */
export function functionAddressOf(url: URL, { ref, path }: ProjectAddress): FunctionAddress | undefined {
  const [, slug] = PATH.exec(path) ?? []
  if (ref === undefined || slug === undefined) return undefined
  const { origin, pathname, search } = url
  return { ref, slug, path: pathname, url: origin + path.slice(BASE.length) + search, isShared: path !== pathname }
}

/** Whether the path belongs to the functions of a project, even if it does not name one. */
export const isForFunctions = ({ ref, path }: ProjectAddress): boolean =>
  ref !== undefined && (path === BASE || path.startsWith(`${BASE}/`))
