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

/** A file of the source, or another specifier to resolve instead. */
type Found = { path: string } | { specifier: string }

const ROOT = 'package.json'
const Patterns = z.array(z.string().max(LIMITS.patternLength)).max(LIMITS.staticPatterns)
const Root = z.looseObject({
  workspaces: z
    .union([Patterns, z.looseObject({ packages: Patterns }).transform(({ packages }) => packages)])
    .default([]),
})

/** Resolves imports of packages within the source: the importer's own package, and the workspaces of the root. */
export function openLocalPackages(source: Source, packageFiles: PackageFiles) {
  let workspaces: Map<string, string> | undefined

  function fileOf(specifier: string, file: string, target: string): Found {
    const path = pathFrom(folderOf(file), target)
    if (path === undefined)
      throw new Problem(`Invalid path ${JSON.stringify(target)}: must stay within the source`, { file })
    const found = findFile(source, path)
    if (found === undefined)
      throw new Problem(`"${specifier}" cannot be found: ${file} maps it to "${path}", which is not in the source`)
    return { path: found }
  }

  function resolveInternal(specifier: string, importer: string, kind: Kind): Found {
    const file = packageFiles.nearest(importer)
    if (!file)
      throw new Problem(
        `"${specifier}" cannot be resolved: it requires \`imports\` in a package.json, and the source has none`,
      )
    const target = internalOf(describePackage(file), specifier, kind)
    if (target.startsWith('./')) return fileOf(specifier, file, target)
    if (/^[#./]/.test(target))
      throw new Problem(`Invalid target "${target}" of "${specifier}": must begin with ./ or be a package`, { file })
    return { specifier: target }
  }

  function describePackage(file: string) {
    const json = packageFiles.read(file)
    return { json, name: json.name || file }
  }

  function entry(specifier: string, file: string, { subpath, kind }: { subpath: string; kind: Kind }): Found {
    const targets = entryTargets(describePackage(file), subpath, kind)
    for (const target of targets) {
      const path = pathFrom(folderOf(file), target)
      const found = path === undefined ? undefined : findFile(source, path)
      if (found !== undefined) return { path: found }
    }
    return fileOf(specifier, file, targets[0] ?? subpath)
  }

  return {
    find(specifier: string, importer: string, kind: Kind): Found | undefined {
      if (specifier.startsWith('#')) return resolveInternal(specifier, importer, kind)
      const { name, subpath } = bareOf(specifier) ?? {}
      if (name === undefined || subpath === undefined) return undefined
      const own = packageFiles.nearest(importer)
      if (own !== undefined && canImportItself(packageFiles.read(own), name))
        return entry(specifier, own, { subpath, kind })
      workspaces ??= workspacesOf(source, packageFiles)
      const file = workspaces.get(name)
      return file === undefined ? undefined : entry(specifier, file, { subpath, kind })
    },
  }
}
export type LocalPackages = ReturnType<typeof openLocalPackages>

/** A package can import itself only if it has exports. */
const canImportItself = (json: PackageJson, name: string) => json.name === name && json.exports !== undefined

/** Returns the package.json files of the workspaces by package name. */
function workspacesOf(source: Source, packageFiles: PackageFiles): Map<string, string> {
  const patterns = source.has(ROOT) ? readJson(source, ROOT, Root).workspaces : []
  const isIncluded = matcherOf(patterns.filter((pattern) => !pattern.startsWith('!')))
  const isExcluded = matcherOf(patterns.filter((pattern) => pattern.startsWith('!')).map((pattern) => pattern.slice(1)))
  const files = Array.from(source.keys()).filter((path) => path.endsWith(`/${ROOT}`))
  const found = files.filter((file) => isIncluded(folderOf(file)) && !isExcluded(folderOf(file)))
  return new Map(found.map((file) => [packageFiles.read(file).name, file]))
}

function matcherOf(patterns: string[]): (folder: string) => boolean {
  const matches = guarded(() => openGlobs(patterns.map((pattern) => pattern.replace(/^(\.?\/)+|\/+$/g, ''))))
  return (folder) => guarded(() => matches(folder))
}

function guarded<T>(work: () => T): T {
  try {
    return work()
  } catch {
    throw new Problem('Invalid `workspaces`: the patterns expand to too many, or take too long to match', {
      file: ROOT,
    })
  }
}
