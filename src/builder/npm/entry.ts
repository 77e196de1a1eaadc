import { exports, imports } from 'resolve.exports'
import { Problem } from '../problem.ts'
import { inFolder } from '../source.ts'
import type { Installed } from './versions.ts'

export type Kind = 'import' | 'require'

/** As bundlers for this runtime have it: what packages publish for workers, else for browsers, else for all. */
const CONDITIONS = ['workerd', 'worker', 'browser', 'module']
const options = (kind: Kind) => ({ unsafe: true, conditions: [...CONDITIONS, kind] })

/** What they have for browsers needs a page (DOMParser), and the rest runs anywhere. */
const OF_PAGES: readonly string[] = ['@aws-sdk/xml-builder']

/** What a package has in the place of its files, and of others, where there is no Node. */
export const browserOf = ({ name, json }: Installed): Installed['json']['browser'] =>
  OF_PAGES.includes(name) ? undefined : json.browser

/** The file of a package that `subpath` ("." or "./sub") stands for; undefined for one that has no use here. */
export function entryOf(from: Installed, subpath: string, kind: Kind): string | undefined {
  const paths = from.json.exports === undefined ? legacyEntry(from, subpath) : exportedEntry(from, subpath, kind)
  for (const path of paths) {
    const found = fileOf(from, path)
    if (found !== undefined) return found || undefined
  }
  throw new Problem(
    `${from.name}@${from.version} has no ${subpath === '.' ? 'entry' : `"${subpath}"`} that can be imported`,
  )
}

function exportedEntry({ json, name, version }: Installed, subpath: string, kind: Kind): string[] {
  try {
    return exports({ ...json, name: name || 'package' }, subpath, options(kind)) ?? []
  } catch {
    throw new Problem(`${name}@${version} does not export "${subpath}"`)
  }
}

function legacyEntry(from: Installed, subpath: string): string[] {
  if (subpath !== '.') return [subpath]
  const { json } = from
  const mains = [browserOf(from), json.module, json.main].filter((path) => typeof path === 'string')
  return [...mains, './index']
}

/** What "#name" stands for inside a package: a file of it, or another package. */
export function internalOf({ json, name, version }: Installed, specifier: string, kind: Kind): string {
  try {
    const [target] = imports({ ...json, name }, specifier, options(kind)) ?? []
    if (target) return target
  } catch {}
  throw new Problem(`${name}@${version} has no internal import "${specifier}"`)
}

const EXTENSIONS = ['.js', '.mjs', '.cjs', '.json']
const asFile = (path: string): string[] => ['', ...EXTENSIONS].map((extension) => path + extension)
const asFolder = (path: string): string[] => EXTENSIONS.map((extension) => inFolder(path, `index${extension}`))
const asEither = (path: string): string[] => [...asFile(path), ...asFolder(path)]

/** The file at a path as Node would find it, then what package.json puts in its place: '' where that is nothing. */
export function fileOf(from: Installed, path: string): string | undefined {
  const { files } = from
  const browserField = browserOf(from)
  const plain = normalize(path)
  const found = [...asFile(plain), ...mainOf(files, plain), ...asFolder(plain)].find((file) => files.has(file))
  const browser = typeof browserField === 'object' ? browserField : {}
  const replaced = [plain, found].map((key) => key && browser[`./${key}`]).find((to) => to !== undefined && to !== '')
  if (replaced === false) return ''
  if (replaced) return asEither(normalize(replaced)).find((file) => files.has(file))
  return found
}

/** A folder with a package.json of its own says there which of its files is meant. */
function mainOf(files: Installed['files'], folder: string): string[] {
  const contents = files.get(inFolder(folder, 'package.json'))
  if (!contents) return []
  try {
    const { module, main } = JSON.parse(new TextDecoder().decode(contents)) as Record<string, unknown>
    const targets = [module, main].filter((target) => typeof target === 'string')
    return targets.flatMap((target) => asEither(normalize(`${folder}/${target}`)))
  } catch {
    return []
  }
}

const normalize = (path: string): string =>
  decodeURIComponent(new URL(path.split('/').map(encodeURIComponent).join('/'), 'file:///').pathname.slice(1)).replace(
    /\/$/,
    '',
  )
