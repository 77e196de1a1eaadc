import { exports, imports } from 'resolve.exports'
import { Problem } from '../build-problem.ts'
import { inFolder } from '../source.ts'
import type { Installed } from './versions.ts'

export type Kind = 'import' | 'require'

/**
 * Export conditions of workers. Packages without them are resolved for Node, as in Deno, because code for browsers
 * needs a page or has fewer features.
 */
const WORKER_CONDITIONS = ['workerd', 'worker']

/**
 * Packages whose Node code fails in the runtime: it generates code, is native, or needs unsupported features of
 * `node:http`.
 */
const FOR_BROWSERS: readonly string[] = [
  'depd',
  'ably',
  '@discordjs/rest',
  '@firebase/firestore',
  '@xenova/transformers',
  'cross-fetch',
  'grammy',
  'node-fetch',
]
const platformOf = (name: string): 'browser' | 'node' => (FOR_BROWSERS.includes(name) ? 'browser' : 'node')

/** The `browser` replacements of a package that is resolved for browsers. */
export const browserOf = ({ name, json }: PackageInfo): Installed['json']['browser'] =>
  platformOf(name) === 'browser' ? json.browser : undefined

/** Package data needed to resolve its entries. */
type PackageInfo = Pick<Installed, 'name' | 'json'> & { version?: string }

const displayName = ({ name, version }: PackageInfo): string => (version ? `${name}@${version}` : name)

/** Candidates for `subpath` ("." or "./sub") of a package, best first. */
export const entryTargets = (from: PackageInfo, subpath: string, kind: Kind): string[] =>
  from.json.exports === undefined ? legacyEntry(from, subpath) : exportedEntry(from, subpath, kind)

/** Returns the file of a package for `subpath`. */
export function entryOf(from: Installed, subpath: string, kind: Kind): string {
  for (const path of entryTargets(from, subpath, kind)) {
    const found = fileOf(from, path)
    if (found !== undefined) return found
  }
  throw new Problem(
    `${from.name}@${from.version} has no ${subpath === '.' ? 'entry' : `"${subpath}"`} that can be imported`,
  )
}

function exportedEntry(from: PackageInfo, subpath: string, kind: Kind): string[] {
  const { json, name } = from
  const paths = resolveTargets(name, kind, (options) => exports({ ...json, name: name || 'package' }, subpath, options))
  if (!paths) throw new Problem(`${displayName(from)} does not export "${subpath}"`)
  return paths
}

type Resolve = (options: { unsafe: true; conditions: string[] }) => ReturnType<typeof imports>

/**
 * Tries worker conditions alone first: the package decides the order of conditions, and may list Node before workers.
 */
function resolveTargets(name: string, kind: Kind, resolve: Resolve): string[] | undefined {
  const by = (...conditions: string[]) => {
    try {
      return resolve({ unsafe: true, conditions: [...conditions, kind] }) || undefined
    } catch {
      return undefined
    }
  }
  const forWorkers = by(...WORKER_CONDITIONS)
  return forWorkers?.join() === by()?.join() ? by(...WORKER_CONDITIONS, platformOf(name)) : forWorkers
}

function legacyEntry(from: PackageInfo, subpath: string): string[] {
  if (subpath !== '.') return [subpath]
  const mains = [browserOf(from), from.json.main, from.json.module]
  return [...mains.filter((path) => typeof path === 'string'), './index']
}

/** Resolves "#name" within a package to one of its files or another package. */
export function internalOf(from: PackageInfo, specifier: string, kind: Kind): string {
  const { json, name } = from
  const [target] = resolveTargets(name, kind, (options) => imports({ ...json, name }, specifier, options)) ?? []
  if (target) return target
  throw new Problem(`${displayName(from)} has no internal import "${specifier}"`)
}

const EXTENSIONS = ['.js', '.mjs', '.cjs', '.json']
const asFile = (path: string): string[] => ['', ...EXTENSIONS].map((extension) => path + extension)
const asFolder = (path: string): string[] => EXTENSIONS.map((extension) => inFolder(path, `index${extension}`))

/** Finds the file at a path by Node's rules. */
export function fileOf({ files }: Installed, path: string): string | undefined {
  const plain = normalize(path)
  return [...asFile(plain), ...mainOf(files, plain), ...asFolder(plain)].find((file) => files.has(file))
}

/** Entry files named by the package.json of a folder. */
function mainOf(files: Installed['files'], folder: string): string[] {
  const contents = files.get(inFolder(folder, 'package.json'))
  if (!contents) return []
  try {
    const { main, module } = JSON.parse(new TextDecoder().decode(contents)) as Record<string, unknown>
    const targets = [main, module].filter((target) => typeof target === 'string')
    return targets
      .map((target) => normalize(`${folder}/${target}`))
      .flatMap((target) => [...asFile(target), ...asFolder(target)])
  } catch {
    return []
  }
}

function normalize(path: string): string {
  const encoded = path.replace(/\/+/g, '/').split('/').map(encodeURIComponent).join('/')
  return decodeURIComponent(new URL(encoded, 'file:///').pathname.slice(1)).replace(/\/$/, '')
}
