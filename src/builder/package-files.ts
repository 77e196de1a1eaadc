import * as z from 'zod'
import { readJson } from './json.ts'
import { PackageJson } from './npm/package-json.ts'
import { parsePackageUrl } from './npm/specifier.ts'
import type { Roots } from './npm/versions.ts'
import { foldersAbove, inFolder, nearestFile, type Source, textOf } from './source.ts'

/** Reads the package.json files of the source. */
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
    /** Returns the nearest package.json above a file. */
    nearest: (path: string): string | undefined => nearestFile(source, path, 'package.json'),
    /** Returns the version range of a dependency, from the nearest package.json above the importer that lists it. */
    rangeOf(name: string, importer: string): string | undefined {
      const files = foldersAbove(importer).map((folder) => inFolder(folder, 'package.json'))
      const found = files.find((file) => source.has(file) && Object.hasOwn(rangesIn(file), name))
      return found && rangesIn(found)[name]
    },
  }
}

export type PackageFiles = ReturnType<typeof openPackageFiles>

const SPECIFIERS = /\b(?:npm|jsr):\/?(?:@[\w.~-]+\/)?[\w.~-]+@[^/"'`\s]+/g
const SCANNED = /\.([cm]?[jt]sx?|jsonc?)$/
const LOCK_FILE = /(^|\/)package-lock\.json$/
const Lock = z.looseObject({ packages: z.record(z.string(), z.looseObject({ version: z.string().optional() })) })

/**
 * Collects version ranges that the source names, locked versions first. They are only preferences, so false matches are
 * harmless.
 */
export function rootsOf(source: Source): Roots {
  const roots = new Map<string, Set<string>>()
  const add = (name: string, range: string) => roots.set(name, (roots.get(name) ?? new Set()).add(range))
  for (const [path, contents] of source)
    if (LOCK_FILE.test(path)) for (const [name, version] of lockedVersions(textOf(contents))) add(name, version)
  for (const [path, contents] of source) {
    if (!SCANNED.test(path) || LOCK_FILE.test(path)) continue
    const text = textOf(contents)
    if (/(^|\/)package\.json$/.test(path)) for (const [name, range] of dependenciesIn(text)) add(name, range)
    for (const [specifier] of text.matchAll(SPECIFIERS)) addSpecifier(specifier, add)
  }
  return roots
}

function addSpecifier(specifier: string, add: (name: string, range: string) => void): void {
  try {
    const { name, range } = parsePackageUrl(specifier)
    add(name, range)
  } catch {}
}

function dependenciesIn(text: string): [string, string][] {
  try {
    return Object.entries(PackageJson.parse(JSON.parse(text)).dependencies)
  } catch {
    return []
  }
}

/** An invalid lock file is ignored: it may be that of a fixture. */
function lockedVersions(text: string): [string, string][] {
  try {
    return Object.entries(Lock.parse(JSON.parse(text)).packages).flatMap(([folder, { version }]) => {
      const name = /^node_modules\/((?:@[^/]+\/)?[^/]+)$/.exec(folder)?.[1]
      return name && version ? [[name, version] as [string, string]] : []
    })
  } catch {
    return []
  }
}
