/** Where a request for a project's own services goes. */
export interface ProjectAddress {
  /** Absent where the credential names the project. */
  ref?: string
  /** From the service's name on, still percent-encoded: `/storage/v1/object/…`. */
  path: string
}

const BY_PATH = /^\/p\/([a-z]{20})(\/.*)$/

/**
 * `{ref}.{domain}/…` and `/p/{ref}/…` name the project; `/storage/v1/…` alone is for clients that can only be given a host and a port, such
 * as the CLI with `--local`. Undefined for the management API.
 */
export function projectAddressOf({ hostname, pathname }: URL, domain: string | undefined): ProjectAddress | undefined {
  if (domain && hostname.endsWith(`.${domain}`)) {
    return { ref: hostname.slice(0, -domain.length - 1), path: pathname }
  }
  const [, ref, path] = BY_PATH.exec(pathname) ?? []
  if (ref !== undefined && path !== undefined) return { ref, path }
  return pathname.startsWith('/storage/v1/') ? { path: pathname } : undefined
}
