import * as z from 'zod'
import { Problem } from './build-problem.ts'
import { CompilerOptions } from './import-map.ts'
import { readJson } from './json.ts'
import { LIMITS } from './limits.ts'
import { findFile, folderOf, nearestFile, pathFrom, type Source } from './source.ts'

const Paths = z.record(z.string(), z.array(z.string()))
const TsConfig = z.looseObject({
  extends: z.union([z.string().transform((one) => [one]), z.array(z.string()).max(LIMITS.extendedFiles)]).default([]),
  compilerOptions: z.looseObject({ baseUrl: z.string().optional(), paths: Paths.optional() }).default({}),
})

/** A value with the folder that its paths are relative to. */
interface Located<T> {
  value: T
  folder: string
}

interface Options {
  baseUrl?: Located<string>
  paths?: Located<z.output<typeof Paths>>
  others: Record<string, unknown>
  /** An extended file that is not in the source. */
  missing?: { file: string; named: string }
}

/** Reads the tsconfig.json files of a source. As in bundlers, the nearest one above a file applies. Throws Problem. */
export function openTsConfigs(source: Source) {
  const known = new Map<string, Options>()
  const reading = new Set<string>()

  function optionsIn(file: string): Options {
    if (reading.has(file)) throw new Problem('Invalid `extends`: the file extends itself', { file })
    reading.add(file)
    try {
      const options = known.get(file) ?? read(file)
      known.set(file, options)
      return options
    } finally {
      reading.delete(file)
    }
  }

  function read(file: string): Options {
    const { extends: bases, compilerOptions } = readJson(source, file, TsConfig)
    const { baseUrl, paths, ...others } = compilerOptions
    const folder = folderOf(file)
    const inherited = bases.map((named) => baseOf(file, named)).reduce(merge, { others: {} })
    return merge(inherited, {
      ...(baseUrl !== undefined && { baseUrl: { value: baseUrl, folder } }),
      ...(paths && { paths: { value: paths, folder } }),
      others,
    })
  }

  /** Extended packages are ignored, as they set compiler options rather than paths. */
  function baseOf(file: string, named: string): Options {
    if (!/^\.{0,2}\//.test(named)) return { others: {} }
    const path = pathFrom(folderOf(file), named)
    const found = path && [path, `${path}.json`, `${path}/tsconfig.json`].find((candidate) => source.has(candidate))
    return found ? optionsIn(found) : { others: {}, missing: { file, named } }
  }

  const nearest = (importer: string) => nearestFile(source, importer, 'tsconfig.json')

  return {
    /** Resolves a bare specifier by `paths` and `baseUrl`. */
    find(specifier: string, importer: string): string | undefined {
      const file = nearest(importer)
      return file && resolveBy(source, { ...optionsIn(file), file }, specifier)
    },
    /** Returns an extended file that is missing: a possible reason why a specifier was not found. */
    missing(importer: string): Options['missing'] {
      const file = nearest(importer)
      return file === undefined ? undefined : optionsIn(file).missing
    },
    compilerOptions(entrypoint: string): CompilerOptions {
      const file = nearest(entrypoint)
      return file === undefined ? {} : validOptions(optionsIn(file).others)
    },
  }
}
export type TsConfigs = ReturnType<typeof openTsConfigs>

/** Used for programs to which tsconfig.json does not apply. */
export const NO_TSCONFIGS: TsConfigs = {
  find: () => undefined,
  missing: () => undefined,
  compilerOptions: () => ({}),
}

/** Omits options with values that the bundler does not know, as bundlers do. */
function validOptions(options: Record<string, unknown>): CompilerOptions {
  const { data, error } = CompilerOptions.safeParse(options)
  if (data) return data
  const invalid = new Set(error.issues.map(({ path: [name] }) => name))
  return CompilerOptions.parse(Object.fromEntries(Object.entries(options).filter(([name]) => !invalid.has(name))))
}

const merge = (base: Options, { others, ...own }: Options): Options => ({
  ...base,
  ...own,
  others: { ...base.others, ...others },
})

interface NearestOptions extends Options {
  /** The tsconfig.json itself. */
  file: string
}

const TYPES_ONLY = /\.d\.[cm]?ts$/

function resolveBy(source: Source, { file, baseUrl, paths }: NearestOptions, specifier: string): string | undefined {
  const pathOf = ({ value, folder }: Located<string>) => {
    const [, below] = /^\$\{configDir\}\/?(.*)$/.exec(value) ?? []
    return below === undefined ? pathFrom(folder, value) : pathFrom(folderOf(file), below)
  }
  const base = baseUrl && pathOf(baseUrl)
  for (const value of paths ? targetsOf(paths.value, specifier) : []) {
    const folder = baseUrl ? base : paths?.folder
    const path = folder === undefined ? undefined : pathOf({ value, folder })
    if (path === undefined)
      throw new Problem(`Invalid path "${value}" of "${specifier}": must stay within the source`, { file })
    const found = findFile(source, path)
    if (found !== undefined && !TYPES_ONLY.test(found)) return found
  }
  const path = base === undefined ? undefined : pathFrom(base, specifier)
  return path === undefined ? undefined : findFile(source, path)
}

/** Returns the targets of an exact match, else of the pattern with the longest prefix before its `*`. */
function targetsOf(paths: z.output<typeof Paths>, specifier: string): string[] {
  if (Object.hasOwn(paths, specifier)) return paths[specifier] ?? []
  const [best] = Object.keys(paths)
    .map((pattern) => ({ pattern, parts: pattern.split('*') }))
    .filter(({ parts }) => parts.length === 2 && matchesPattern(specifier, parts))
    .sort((one, other) => (other.parts[0]?.length ?? 0) - (one.parts[0]?.length ?? 0))
  if (!best) return []
  const [before = '', after = ''] = best.parts
  const matched = specifier.slice(before.length, specifier.length - after.length)
  return (paths[best.pattern] ?? []).map((target) => target.replace('*', () => matched))
}

const matchesPattern = (text: string, [before = '', after = '']: string[]): boolean =>
  text.length >= before.length + after.length && text.startsWith(before) && text.endsWith(after)
