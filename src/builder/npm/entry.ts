import { exports, imports } from 'resolve.exports'
import { Problem } from '../build-problem.ts'
import { inFolder } from '../source.ts'
import type { Installed } from './versions.ts'

export type Kind = 'import' | 'require'

/** What packages publish for workers, else for Node, as Deno has it: what is for browsers needs a page, or does less. */
const OF_WORKERS = ['workerd', 'worker']

/** What these have for Node fails in the runtime: it makes code, is made for a system, or sends what the runtime's `node:http` does not. */
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
const surroundingsOf = (name: string): 'browser' | 'node' => (FOR_BROWSERS.includes(name) ? 'browser' : 'node')

/** What such a package has in the place of its files, and of others. */
export const browserOf = ({ name, json }: Described): Installed['json']['browser'] =>
  surroundingsOf(name) === 'browser' ? json.browser : undefined

/** Of a package, wherever its files are. */
type Described = Pick<Installed, 'name' | 'json'> & { version?: string }

const shown = ({ name, version }: Described): string => (version ? `${name}@${version}` : name)

/** What `subpath` ("." or "./sub") of a package may stand for, the best first. */
export const entryTargets = (from: Described, subpath: string, kind: Kind): string[] =>
  from.json.exports === undefined ? legacyEntry(from, subpath) : exportedEntry(from, subpath, kind)

/** The file of a package that `subpath` stands for. */
export function entryOf(from: Installed, subpath: string, kind: Kind): string {
  for (const path of entryTargets(from, subpath, kind)) {
    const found = fileOf(from, path)
    if (found !== undefined) return found
  }
  throw new Problem(
    `${from.name}@${from.version} has no ${subpath === '.' ? 'entry' : `"${subpath}"`} that can be imported`,
  )
}

function exportedEntry(from: Described, subpath: string, kind: Kind): string[] {
  const { json, name } = from
  const paths = chosen(name, kind, (options) => exports({ ...json, name: name || 'package' }, subpath, options))
  if (!paths) throw new Problem(`${shown(from)} does not export "${subpath}"`)
  return paths
}

type Resolve = (options: { unsafe: true; conditions: string[] }) => ReturnType<typeof imports>

/** Conditions have no order but the package's own, which may list Node before workers. */
function chosen(name: string, kind: Kind, resolve: Resolve): string[] | undefined {
  const by = (...conditions: string[]) => {
    try {
      return resolve({ unsafe: true, conditions: [...conditions, kind] }) || undefined
    } catch {
      return undefined
    }
  }
  const ofWorkers = by(...OF_WORKERS)
  return ofWorkers?.join() === by()?.join() ? by(...OF_WORKERS, surroundingsOf(name)) : ofWorkers
}

function legacyEntry(from: Described, subpath: string): string[] {
  if (subpath !== '.') return [subpath]
  const mains = [browserOf(from), from.json.main, from.json.module]
  return [...mains.filter((path) => typeof path === 'string'), './index']
}

/** What "#name" stands for inside a package: a file of it, or another package. */
export function internalOf(from: Described, specifier: string, kind: Kind): string {
  const { json, name } = from
  const [target] = chosen(name, kind, (options) => imports({ ...json, name }, specifier, options)) ?? []
  if (target) return target
  throw new Problem(`${shown(from)} has no internal import "${specifier}"`)
}

const EXTENSIONS = ['.js', '.mjs', '.cjs', '.json']
const asFile = (path: string): string[] => ['', ...EXTENSIONS].map((extension) => path + extension)
const asFolder = (path: string): string[] => EXTENSIONS.map((extension) => inFolder(path, `index${extension}`))

/** The file at a path as Node would find it. */
export function fileOf({ files }: Installed, path: string): string | undefined {
  const plain = normalize(path)
  return [...asFile(plain), ...mainOf(files, plain), ...asFolder(plain)].find((file) => files.has(file))
}

/** A folder with a package.json of its own says there which of its files is meant. */
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
