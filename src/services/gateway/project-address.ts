/** Where a request for a project's own services goes. */
export interface ProjectAddress {
  /** Absent where the credential names the project. */
  ref?: string
  /** From the service's name on, still percent-encoded: `/storage/v1/object/…`. */
  path: string
}

export interface Located {
  url: URL
  /** Undefined for the management API. */
  project: ProjectAddress | undefined
}

const located = new WeakMap<Request, Located>()

/** Read once for a request, which is asked several times. As the URL standard reads a path, so that `..` has no meaning left. */
export function locate(request: Request, { PROJECT_DOMAIN }: { PROJECT_DOMAIN?: string }): Located {
  const known = located.get(request)
  if (known) return known
  const url = new URL(request.url)
  const found = { url, project: projectAddressOf(url, PROJECT_DOMAIN) }
  located.set(request, found)
  return found
}

const REF = /^[a-z]{20}$/
const BY_PATH = /^\/p\/([a-z]{20})(\/.*)$/

/**
 * `{ref}.{domain}/…` and `/p/{ref}/…` name the project; `/storage/v1/…` alone is for clients that can only be given a host and a port, such
 * as the CLI with `--local`. Undefined for the management API.
 */
function projectAddressOf({ hostname, pathname }: URL, domain: string | undefined): ProjectAddress | undefined {
  // The management API may itself be a host below the domain.
  const label = domain && hostname.endsWith(`.${domain}`) ? hostname.slice(0, -domain.length - 1) : ''
  if (REF.test(label)) return { ref: label, path: pathname }
  const [, ref, path] = BY_PATH.exec(pathname) ?? []
  if (ref !== undefined && path !== undefined) return { ref, path }
  return pathname.startsWith('/storage/v1/') ? { path: pathname } : undefined
}

/**
 * What a host may be called that is no project's ref: the one label below the domain, else the whole name, which then has a dot. Undefined where
 * nothing could be called so.
 */
export function aliasIn(
  { hostname }: URL,
  { BASE_URL = '', PROJECT_DOMAIN: domain }: { BASE_URL?: string; PROJECT_DOMAIN?: string },
): string | undefined {
  if (!isName(hostname) || hostname === hostIn(BASE_URL)) return undefined
  if (!domain || !hostname.endsWith(`.${domain}`)) return hostname
  const label = hostname.slice(0, -domain.length - 1)
  return REF.test(label) || label.includes('.') ? undefined : label
}

/** Neither an address, in the one spelling that the URL standard leaves, nor a name of this machine or network alone. */
export const isName = (hostname: string): boolean => hostname.includes('.') && !/^[\d.]+$|^\[/.test(hostname)

const hosts = new Map<string, string>()
/** Of a setting, of which there is one. */
function hostIn(baseUrl: string): string {
  const known = hosts.get(baseUrl) ?? URL.parse(baseUrl)?.hostname ?? ''
  hosts.set(baseUrl, known)
  return known
}

/** The whole host is the project's. */
export function locateAs(request: Request, url: URL, ref: string): void {
  located.set(request, { url, project: { ref, path: url.pathname } })
}

/** Where a project's own services are, for who reaches the installation at its public address. */
export function projectUrl(
  { BASE_URL, PROJECT_DOMAIN }: { BASE_URL: string; PROJECT_DOMAIN?: string },
  ref: string,
): string {
  if (!PROJECT_DOMAIN) return `${BASE_URL}/p/${ref}`
  const { protocol, port } = new URL(BASE_URL)
  return `${protocol}//${ref}.${PROJECT_DOMAIN}${port && `:${port}`}`
}
