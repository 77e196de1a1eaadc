import * as z from 'zod'
import { Problem } from './build-problem.ts'
import { openGlobs } from './glob.ts'
import { readJson } from './json.ts'
import { LIMITS } from './limits.ts'
import { entryTargets, internalOf, type Kind } from './npm/entry.ts'
import type { PackageJson } from './npm/package-json.ts'
import { bareOf } from './npm/specifier.ts'
import type { PackageFiles } from './package-files.ts'
import { findFile, folderOf, pathFrom, type Source } from './source.ts'

/** A file of the source, or what else the specifier means. */
type Found = { path: string } | { specifier: string }

const ROOT = 'package.json'
const Patterns = z.array(z.string().max(LIMITS.patternLength)).max(LIMITS.staticPatterns)
const Root = z.looseObject({
  workspaces: z
    .union([Patterns, z.looseObject({ packages: Patterns }).transform(({ packages }) => packages)])
    .default([]),
})

/** The packages that a source itself holds: the one that a file lies in, and the workspaces of the root. */
export function openLocalPackages(source: Source, packageFiles: PackageFiles) {
  let workspaces: Map<string, string> | undefined

  function fileOf(specifier: string, file: string, target: string): Found {
    const path = pathFrom(folderOf(file), target)
    if (path === undefined) throw new Problem(`The path ${JSON.stringify(target)} leads out of the source`, { file })
    const found = findFile(source, path)
    if (found === undefined) throw new Problem(`"${specifier}" is "${path}" by ${file}, which the source does not have`)
    return { path: found }
  }

  function internal(specifier: string, importer: string, kind: Kind): Found {
    const file = packageFiles.nearest(importer)
    if (!file) throw new Problem(`"${specifier}" is among the imports of a package.json, and the source has none`)
    const target = internalOf(described(file), specifier, kind)
    if (target.startsWith('./')) return fileOf(specifier, file, target)
    if (/^[#./]/.test(target)) throw new Problem(`"${specifier}" cannot be mapped to "${target}"`, { file })
    return { specifier: target }
  }

  function described(file: string) {
    const json = packageFiles.read(file)
    return { json, name: json.name || file }
  }

  function entry(specifier: string, file: string, { subpath, kind }: { subpath: string; kind: Kind }): Found {
    const targets = entryTargets(described(file), subpath, kind)
    for (const target of targets) {
      const path = pathFrom(folderOf(file), target)
      const found = path === undefined ? undefined : findFile(source, path)
      if (found !== undefined) return { path: found }
    }
    return fileOf(specifier, file, targets[0] ?? subpath)
  }

  return {
    find(specifier: string, importer: string, kind: Kind): Found | undefined {
      if (specifier.startsWith('#')) return internal(specifier, importer, kind)
      const { name, subpath } = bareOf(specifier) ?? {}
      if (name === undefined || subpath === undefined) return undefined
      const own = packageFiles.nearest(importer)
      if (own !== undefined && isExported(packageFiles.read(own), name)) return entry(specifier, own, { subpath, kind })
      workspaces ??= workspacesOf(source, packageFiles)
      const file = workspaces.get(name)
      return file === undefined ? undefined : entry(specifier, file, { subpath, kind })
    },
  }
}
export type LocalPackages = ReturnType<typeof openLocalPackages>

/** Without exports a package cannot import from itself. */
const isExported = (json: PackageJson, name: string) => json.name === name && json.exports !== undefined

/** Their package.json files, by the names in them. */
function workspacesOf(source: Source, packageFiles: PackageFiles): Map<string, string> {
  const patterns = source.has(ROOT) ? readJson(source, ROOT, Root).workspaces : []
  const isIn = matcherOf(patterns.filter((pattern) => !pattern.startsWith('!')))
  const isOut = matcherOf(patterns.filter((pattern) => pattern.startsWith('!')).map((pattern) => pattern.slice(1)))
  const files = Array.from(source.keys()).filter((path) => path.endsWith(`/${ROOT}`))
  const held = files.filter((file) => isIn(folderOf(file)) && !isOut(folderOf(file)))
  return new Map(held.map((file) => [packageFiles.read(file).name, file]))
}

function matcherOf(patterns: string[]): (folder: string) => boolean {
  const matches = guarded(() => openGlobs(patterns.map((pattern) => pattern.replace(/^(\.?\/)+|\/+$/g, ''))))
  return (folder) => guarded(() => matches(folder))
}

function guarded<T>(work: () => T): T {
  try {
    return work()
  } catch {
    throw new Problem('Its workspaces stand for too much, or take too long to match', { file: ROOT })
  }
}
