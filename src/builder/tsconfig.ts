import * as z from 'zod'
import { Problem } from './build-problem.ts'
import { CompilerOptions } from './import-map.ts'
import { readJson } from './json.ts'
import { LIMITS } from './limits.ts'
import { findFile, folderOf, foldersAbove, inFolder, pathFrom, type Source } from './source.ts'

const Paths = z.record(z.string(), z.array(z.string()))
const TsConfig = z.looseObject({
  extends: z.union([z.string().transform((one) => [one]), z.array(z.string()).max(LIMITS.extendedFiles)]).default([]),
  compilerOptions: z.looseObject({ baseUrl: z.string().optional(), paths: Paths.optional() }).default({}),
})

/** With the folder of the file that says it, from which it counts. */
interface Said<T> {
  value: T
  folder: string
}

interface Options {
  baseUrl?: Said<string>
  paths?: Said<z.output<typeof Paths>>
  others: Record<string, unknown>
  /** What is extended and is not in the source. */
  missing?: { file: string; named: string }
}

/** The tsconfig.json files of a source, as bundlers read them: the nearest above a file counts. Throws Problem. */
export function openTsConfigs(source: Source) {
  const known = new Map<string, Options>()
  const reading = new Set<string>()

  function optionsIn(file: string): Options {
    if (reading.has(file)) throw new Problem('It extends itself, by way of what it extends', { file })
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
    const inherited = bases.map((named) => baseOf(file, named)).reduce(overridden, { others: {} })
    return overridden(inherited, {
      ...(baseUrl !== undefined && { baseUrl: { value: baseUrl, folder } }),
      ...(paths && { paths: { value: paths, folder } }),
      others,
    })
  }

  /** Packages that are extended hold settings for the compiler, and no paths. */
  function baseOf(file: string, named: string): Options {
    if (!/^\.{0,2}\//.test(named)) return { others: {} }
    const path = pathFrom(folderOf(file), named)
    const found = path && [path, `${path}.json`, `${path}/tsconfig.json`].find((candidate) => source.has(candidate))
    return found ? optionsIn(found) : { others: {}, missing: { file, named } }
  }

  function nearest(importer: string): string | undefined {
    const files = foldersAbove(importer).map((folder) => inFolder(folder, 'tsconfig.json'))
    return files.find((file) => source.has(file))
  }

  return {
    /** The file that its paths or its baseUrl give to a specifier that is no path. */
    find(specifier: string, importer: string): string | undefined {
      const file = nearest(importer)
      return file && fileBy(source, { ...optionsIn(file), file }, specifier)
    },
    /** Why a specifier may have been given no file. */
    missing(importer: string): Options['missing'] {
      const file = nearest(importer)
      return file === undefined ? undefined : optionsIn(file).missing
    },
    compilerOptions(entrypoint: string): CompilerOptions {
      const file = nearest(entrypoint)
      return (file && CompilerOptions.safeParse(optionsIn(file).others).data) || {}
    },
  }
}
export type TsConfigs = ReturnType<typeof openTsConfigs>

/** For programs that are not written for such a compiler. */
export const NO_TSCONFIGS: TsConfigs = {
  find: () => undefined,
  missing: () => undefined,
  compilerOptions: () => ({}),
}

const overridden = (base: Options, { others, ...own }: Options): Options => ({
  ...base,
  ...own,
  others: { ...base.others, ...others },
})

interface Chosen extends Options {
  /** The tsconfig.json itself. */
  file: string
}

const TYPES_ONLY = /\.d\.[cm]?ts$/

function fileBy(source: Source, { file, baseUrl, paths }: Chosen, specifier: string): string | undefined {
  const pathOf = ({ value, folder }: Said<string>) => {
    const [, below] = /^\$\{configDir\}\/?(.*)$/.exec(value) ?? []
    return below === undefined ? pathFrom(folder, value) : pathFrom(folderOf(file), below)
  }
  const base = baseUrl && pathOf(baseUrl)
  for (const value of paths ? targetsOf(paths.value, specifier) : []) {
    const folder = baseUrl ? base : paths?.folder
    const path = folder === undefined ? undefined : pathOf({ value, folder })
    if (path === undefined) throw new Problem(`The path "${value}" of "${specifier}" leads out of the source`, { file })
    const found = findFile(source, path)
    if (found !== undefined && !TYPES_ONLY.test(found)) return found
  }
  const path = base === undefined ? undefined : pathFrom(base, specifier)
  return path === undefined ? undefined : findFile(source, path)
}

/** Of the name itself, else of the pattern that has the most before its `*`. */
function targetsOf(paths: z.output<typeof Paths>, specifier: string): string[] {
  if (Object.hasOwn(paths, specifier)) return paths[specifier] ?? []
  const [best] = Object.keys(paths)
    .map((pattern) => ({ pattern, parts: pattern.split('*') }))
    .filter(({ parts }) => parts.length === 2 && isBetween(specifier, parts))
    .sort((one, other) => (other.parts[0]?.length ?? 0) - (one.parts[0]?.length ?? 0))
  if (!best) return []
  const [before = '', after = ''] = best.parts
  const matched = specifier.slice(before.length, specifier.length - after.length)
  return (paths[best.pattern] ?? []).map((target) => target.replace('*', () => matched))
}

const isBetween = (text: string, [before = '', after = '']: string[]): boolean =>
  text.length >= before.length + after.length && text.startsWith(before) && text.endsWith(after)
