import { REF } from '../../platform/identifiers.ts'

/** The target of a request to a project's own services. */
export interface ProjectAddress {
  /** Absent if the credential identifies the project. */
  ref?: string
  /** Starts with the service's name and is percent-encoded: `/storage/v1/object/…`. */
  path: string
}

export interface Located {
  url: URL
  /** Undefined for the management API. */
  project: ProjectAddress | undefined
}

/**
 * Addresses of requests whose URL does not name the project. Others are not stored: the runtime keeps a key of a WeakMap, with its
 * headers, until the next full garbage collection.
 */
const located = new WeakMap<Request, Located>()

/** Parses the URL of a request. The URL standard resolves `..`, so no path contains it. */
export function locate(request: Request, { PROJECT_DOMAIN }: { PROJECT_DOMAIN?: string }): Located {
  const known = located.get(request)
  if (known) return known
  const url = new URL(request.url)
  return { url, project: projectAddressOf(url, PROJECT_DOMAIN) }
}

const BY_PATH = /^\/p\/([a-z]{20})(\/.*)$/

/**
 * `{ref}.{domain}/…` and `/p/{ref}/…` name the project. A bare `/storage/v1/…` serves clients that accept only a host and a port, such
 * as the CLI with `--local`. Undefined for the management API.
 */
function projectAddressOf({ hostname, pathname }: URL, domain: string | undefined): ProjectAddress | undefined {
  // The host of the management API may itself be below the domain.
  const label = domain && hostname.endsWith(`.${domain}`) ? hostname.slice(0, -domain.length - 1) : ''
  if (REF.test(label)) return { ref: label, path: pathname }
  const [, ref, path] = BY_PATH.exec(pathname) ?? []
  if (ref !== undefined && path !== undefined) return { ref, path }
  return pathname.startsWith('/storage/v1/') ? { path: pathname } : undefined
}

interface HostSettings {
  BASE_URL?: string
  PROJECT_DOMAIN?: string
}

/** Whether the host is below the domain of projects; the host of the management API may be below it too. */
export const isProjectHost = ({ hostname }: URL, { BASE_URL = '', PROJECT_DOMAIN: domain }: HostSettings): boolean =>
  Boolean(domain) && hostname.endsWith(`.${domain}`) && hostname !== hostIn(BASE_URL)

/**
 * The name that a project may have registered for this host: a vanity subdomain (the single label below the domain) or a custom hostname
 * (the whole name). Undefined if the host can be neither, or its label is a project ref.
 */
export function aliasIn(url: URL, settings: HostSettings): string | undefined {
  const { hostname } = url
  const { BASE_URL = '', PROJECT_DOMAIN: domain = '' } = settings
  if (!isDnsName(hostname) || hostname === hostIn(BASE_URL)) return undefined
  if (!isProjectHost(url, settings)) return hostname
  const label = hostname.slice(0, -domain.length - 1)
  return REF.test(label) || label.includes('.') ? undefined : label
}

/** Whether a hostname, as the URL standard spells it, is a name of the public DNS: no IP address and no single label. */
export const isDnsName = (hostname: string): boolean => hostname.includes('.') && !/^[\d.]+$|^\[/.test(hostname)

/** Hostnames by base URL. There is one entry, because BASE_URL is a setting. */
const hosts = new Map<string, string>()
function hostIn(baseUrl: string): string {
  const known = hosts.get(baseUrl) ?? URL.parse(baseUrl)?.hostname ?? ''
  hosts.set(baseUrl, known)
  return known
}

/** The path below the project's address. Logs record it, so that a query finds requests to all addresses of a project. */
export function servicePathOf(request: Request, bindings: { PROJECT_DOMAIN?: string }): string {
  const { url, project } = locate(request, bindings)
  return project?.path ?? url.pathname
}

/** Assigns the request to the project that owns its host. */
export function locateAs(request: Request, url: URL, ref: string): Located {
  const found = { url, project: { ref, path: url.pathname } }
  located.set(request, found)
  return found
}

/** The public base URL of a project's own services. */
export function projectUrl(
  { BASE_URL, PROJECT_DOMAIN }: { BASE_URL: string; PROJECT_DOMAIN?: string },
  ref: string,
): string {
  if (!PROJECT_DOMAIN) return `${BASE_URL}/p/${ref}`
  const { protocol, port } = new URL(BASE_URL)
  return `${protocol}//${ref}.${PROJECT_DOMAIN}${port && `:${port}`}`
}
