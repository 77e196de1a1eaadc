import { Problem } from '../build-problem.ts'

export interface PackageSpecifier {
  name: string
  /** Empty for the latest version. */
  range: string
  /** Subpath as in `exports` of package.json: "." or "./sub". */
  subpath: string
}

const NPM = /^npm:\/?(?<name>(?:@[^/@]+\/)?[^/@]+)(?:@(?<range>[^/]*))?(?:\/(?<sub>.*))?$/
const JSR = /^jsr:\/?@(?<scope>[^/@]+)\/(?<name>[^/@]+)(?:@(?<range>[^/]*))?(?:\/(?<sub>.*))?$/
const NAME = /^(?:@[a-z0-9-~][a-z0-9-._~]*\/)?[a-z0-9-~][a-z0-9-._~]*$/i

/** npm scope of JSR packages in JSR's own registry. */
export const JSR_SCOPE = '@jsr/'

/** Parses an `npm:` or `jsr:` URL. A JSR package gets its npm name, `@jsr/scope__name`. Throws Problem if the URL is invalid. */
export function parsePackageUrl(href: string): PackageSpecifier {
  const text = decode(href)
  const npm = NPM.exec(text)?.groups
  const jsr = JSR.exec(text)?.groups
  const name = npm?.name ?? (jsr && `${JSR_SCOPE}${jsr.scope}__${jsr.name}`)
  if (!name || !NAME.test(name)) throw new Problem(`Invalid package "${text}": must be npm:name or jsr:@scope/name`)
  const { range = '', sub } = npm ?? jsr ?? {}
  return { name, range: range.trim(), subpath: sub ? `./${sub}` : '.' }
}

interface Bare {
  name: string
  subpath: string
}

/** Splits a bare specifier into package and subpath; undefined if it does not name a package. */
export function bareOf(specifier: string): Bare | undefined {
  const match = /^(?<name>(?:@[^/]+\/)?[^/]+)(?:\/(?<sub>.*))?$/.exec(specifier)?.groups
  if (!match?.name || !NAME.test(match.name)) return undefined
  return { name: match.name, subpath: match.sub ? `./${match.sub}` : '.' }
}

/** Same as bareOf, but throws Problem. */
export function parseBare(specifier: string): Bare {
  const bare = bareOf(specifier)
  if (!bare) throw new Problem(`Invalid import "${specifier}": must be a path, an address or a package`)
  return bare
}

function decode(href: string): string {
  try {
    return decodeURIComponent(href)
  } catch {
    throw new Problem(`Invalid package "${href}": must be npm:name or jsr:@scope/name`)
  }
}
