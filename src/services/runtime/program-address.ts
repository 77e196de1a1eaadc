import type { ProjectAddress } from '../gateway/project-address.ts'
import type { ProgramName } from './processes/process-protocol.ts'

export interface ProgramAddress extends ProgramName {
  /** Path that the caller requested, without the query. */
  path: string
  /** The same path below the project's address, as logs record it. */
  servicePath: string
  /** Beginning of the path that the program does not see. */
  prefix: string
  /** URL that the program sees. */
  url: string
  /** Whether other projects and the management API share the origin. */
  isShared: boolean
}

/**
 * The first group is the part of the path that the program does not see, the second its name. A function sees its name
 * as the first segment; a worker sees itself at the root. Clients use both spellings of workers.
 */
const PATHS = [
  { kind: 'function', path: /^(\/functions\/v1)\/([\w-]{1,128})(?=\/|$)/ },
  { kind: 'worker', path: /^(\/(?:workers|compute)\/v1\/([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?))(?=\/|$)/ },
] as const
/** Only functions answer below this path. */
const FUNCTIONS = /^\/functions\/v1(?=\/|$)/

/** Returns undefined if the URL is for another service, and 'unnamed' if it is for programs but names none. */
export function programAddressOf(url: URL, { ref, path }: ProjectAddress): ProgramAddress | 'unnamed' | undefined {
  if (ref === undefined) return undefined
  for (const { kind, path: pattern } of PATHS) {
    const [, hidden, name] = pattern.exec(path) ?? []
    if (hidden === undefined || name === undefined) continue
    const { origin, pathname, search } = url
    const seen = path.slice(hidden.length)
    return {
      ...{
        kind,
        ref,
        name,
        path: pathname,
        servicePath: path,
        prefix: pathname.slice(0, pathname.length - seen.length),
      },
      url: origin + (seen || '/') + search,
      isShared: path !== pathname,
    }
  }
  return FUNCTIONS.test(path) ? 'unnamed' : undefined
}
