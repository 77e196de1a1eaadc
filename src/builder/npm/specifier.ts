import { Problem } from '../build-problem.ts'

export interface PackageSpecifier {
  name: string
  /** Empty for whatever is latest. */
  range: string
  /** As package.json's exports name it: "." or "./sub". */
  subpath: string
}

const NPM = /^npm:\/?(?<name>(?:@[^/@]+\/)?[^/@]+)(?:@(?<range>[^/]*))?(?:\/(?<sub>.*))?$/
const JSR = /^jsr:\/?@(?<scope>[^/@]+)\/(?<name>[^/@]+)(?:@(?<range>[^/]*))?(?:\/(?<sub>.*))?$/
const NAME = /^(?:@[a-z0-9-~][a-z0-9-._~]*\/)?[a-z0-9-~][a-z0-9-._~]*$/i

/** JSR's packages are npm's under another name, at a registry of their own. */
export const JSR_SCOPE = '@jsr/'

export function parsePackageUrl(href: string): PackageSpecifier {
  const text = decode(href)
  const npm = NPM.exec(text)?.groups
  const jsr = JSR.exec(text)?.groups
  const name = npm?.name ?? (jsr && `${JSR_SCOPE}${jsr.scope}__${jsr.name}`)
  if (!name || !NAME.test(name)) throw new Problem(`"${text}" names no package`)
  const { range = '', sub } = npm ?? jsr ?? {}
  return { name, range: range.trim(), subpath: sub ? `./${sub}` : '.' }
}

interface Bare {
  name: string
  subpath: string
}

/** How bare specifiers name packages; undefined for one that names none. */
export function bareOf(specifier: string): Bare | undefined {
  const match = /^(?<name>(?:@[^/]+\/)?[^/]+)(?:\/(?<sub>.*))?$/.exec(specifier)?.groups
  if (!match?.name || !NAME.test(match.name)) return undefined
  return { name: match.name, subpath: match.sub ? `./${match.sub}` : '.' }
}

export function parseBare(specifier: string): Bare {
  const bare = bareOf(specifier)
  if (!bare) throw new Problem(`"${specifier}" names no package`)
  return bare
}

function decode(href: string): string {
  try {
    return decodeURIComponent(href)
  } catch {
    throw new Problem(`"${href}" names no package`)
  }
}
