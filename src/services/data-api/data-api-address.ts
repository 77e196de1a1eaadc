import type { ProjectAddress } from '../gateway/project-address.ts'

export interface DataApiAddress {
  ref: string
  /** The path after `/rest/v1` or `/graphql/v1`. */
  path: string
  service: 'rest' | 'graphql'
  /** The whole path, if other projects and the management API share the origin. */
  sharedPath?: string | undefined
}

const SERVICE = /^\/(rest|graphql)\/v1(\/.*|)$/

export function dataApiAddressOf({ ref, path }: ProjectAddress, pathname: string): DataApiAddress | undefined {
  const [, service, rest] = SERVICE.exec(path) ?? []
  if (ref === undefined || (service !== 'rest' && service !== 'graphql')) return undefined
  return { ref, path: rest || '/', service, sharedPath: path === pathname ? undefined : pathname }
}
