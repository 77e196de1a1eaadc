import * as z from 'zod'
import { readJson } from './json.ts'
import { PackageJson } from './npm/package-json.ts'
import { parsePackageUrl } from './npm/specifier.ts'
import type { Roots } from './npm/versions.ts'
import { foldersAbove, inFolder, type Source, textOf } from './source.ts'

/** The source's own package.json files. */
export function openPackageFiles(source: Source) {
  const known = new Map<string, PackageJson>()

  function read(file: string): PackageJson {
    const json = known.get(file) ?? readJson(source, file, PackageJson)
    known.set(file, json)
    return json
  }

  function rangesIn(file: string): Record<string, string> {
    const { devDependencies, peerDependencies, optionalDependencies, dependencies } = read(file)
    return { ...devDependencies, ...peerDependencies, ...optionalDependencies, ...dependencies }
  }

  return {
    read,
    /** The package.json of the package that a file lies in. */
    nearest: (path: string): string | undefined =>
      foldersAbove(path)
        .map((folder) => inFolder(folder, 'package.json'))
        .find((file) => source.has(file)),
    /** Which range of a package they ask for; the nearest above the importer that names it counts. */
    rangeOf(name: string, importer: string): string | undefined {
      const files = foldersAbove(importer).map((folder) => inFolder(folder, 'package.json'))
      const found = files.find((file) => source.has(file) && Object.hasOwn(rangesIn(file), name))
      return found && rangesIn(found)[name]
    },
  }
}

export type PackageFiles = ReturnType<typeof openPackageFiles>

const NAMED = /\b(?:npm|jsr):\/?(?:@[\w.~-]+\/)?[\w.~-]+@[^/"'`\s]+/g
const READ = /\.([cm]?[jt]sx?|jsonc?)$/
const LOCK = /(^|\/)package-lock\.json$/
const Lock = z.looseObject({ packages: z.record(z.string(), z.looseObject({ version: z.string().optional() })) })

/** Ranges that the source names, locked versions before all others. A preference only: what is no specifier does no harm. */
export function rootsOf(source: Source): Roots {
  const roots = new Map<string, Set<string>>()
  const add = (name: string, range: string) => roots.set(name, (roots.get(name) ?? new Set()).add(range))
  for (const path of source.keys())
    if (LOCK.test(path)) for (const [name, version] of locked(source, path)) add(name, version)
  for (const [path, contents] of source) {
    if (!READ.test(path) || LOCK.test(path)) continue
    const text = textOf(contents)
    if (/(^|\/)package\.json$/.test(path)) for (const [name, range] of dependencies(text)) add(name, range)
    for (const [specifier] of text.matchAll(NAMED)) addSpecifier(specifier, add)
  }
  return roots
}

function addSpecifier(specifier: string, add: (name: string, range: string) => void): void {
  try {
    const { name, range } = parsePackageUrl(specifier)
    add(name, range)
  } catch {}
}

function dependencies(text: string): [string, string][] {
  try {
    return Object.entries(PackageJson.parse(JSON.parse(text)).dependencies)
  } catch {
    return []
  }
}

function locked(source: Source, file: string): [string, string][] {
  const { data } = Lock.safeParse(readJson(source, file, z.unknown()))
  return Object.entries(data?.packages ?? {}).flatMap(([folder, { version }]) => {
    const name = /^node_modules\/((?:@[^/]+\/)?[^/]+)$/.exec(folder)?.[1]
    return name && version ? [[name, version] as [string, string]] : []
  })
}
