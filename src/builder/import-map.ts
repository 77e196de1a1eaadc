import { type ParsedImportMap, parse, resolve } from '@import-maps/resolve'
import * as z from 'zod'
import { Problem } from './build-problem.ts'
import { readJson } from './json.ts'
import { nearestFile, pathOf, type Source, sourcePath, urlOf } from './source.ts'

const Entries = z.record(z.string(), z.string().nullable())
const ImportMapFile = z.looseObject({ imports: Entries.default({}), scopes: z.record(z.string(), Entries).default({}) })

/** The options that apply to a build; others are ignored. */
export const CompilerOptions = z.object({
  jsx: z.enum(['react', 'react-jsx', 'react-jsxdev', 'precompile', 'preserve', 'react-native']).optional(),
  jsxImportSource: z.string().optional(),
  jsxFactory: z.string().optional(),
  jsxFragmentFactory: z.string().optional(),
  experimentalDecorators: z.boolean().optional(),
  useDefineForClassFields: z.boolean().optional(),
  verbatimModuleSyntax: z.boolean().optional(),
})
export type CompilerOptions = z.output<typeof CompilerOptions>

const DenoJson = ImportMapFile.extend({
  importMap: z.string().optional(),
  compilerOptions: CompilerOptions.default({}),
})

export interface ImportSettings {
  /** Resolves a specifier in the module at `importer`; undefined for a bare specifier that is not mapped. */
  resolve(specifier: string, importer: URL): URL | undefined
  compilerOptions: CompilerOptions
}

const isDenoJson = (path: string) => /(^|\/)deno\.jsonc?$/.test(path)

/** Reads the named import map, else the nearest deno.json beside or above the entrypoint. */
export function readImportSettings(source: Source, entrypoint: string, named?: string): ImportSettings {
  const chosen = named ? sourcePath(named) : undefined
  if (chosen && !source.has(chosen)) throw new Problem(`The source has no import map ${chosen}`)
  const denoJson = chosen && isDenoJson(chosen) ? chosen : nearestFile(source, entrypoint, 'deno.json', 'deno.jsonc')
  const config = denoJson ? readJson(source, denoJson, DenoJson) : undefined
  const isMapNamed = chosen !== undefined && chosen !== denoJson
  const mapFile = isMapNamed ? chosen : denoJson && config && mapFileOf(source, denoJson, config)
  return {
    resolve: mapFile ? resolverOf(source, mapFile) : resolveUnmapped,
    compilerOptions: config?.compilerOptions ?? {},
  }
}

/** Returns the import map of a deno.json: the file itself if it has entries, as in Deno and the CLI. */
function mapFileOf(source: Source, file: string, { imports, scopes, importMap }: z.output<typeof DenoJson>): string {
  if (!importMap || Object.keys({ ...imports, ...scopes }).length > 0) return file
  const url = URL.parse(importMap, urlOf(file).href)
  if (!url) throw new Problem('Invalid `importMap`: must be a path in the source', { file })
  const path = pathOf(url)
  if (!source.has(path)) throw new Problem(`The source has no import map ${path}`, { file })
  return path
}

function resolverOf(source: Source, file: string): ImportSettings['resolve'] {
  const { imports, scopes } = readJson(source, file, ImportMapFile)
  const entries = isDenoJson(file) ? { ...subpaths(imports), ...imports } : imports
  const map = parseMap(file, { imports: entries, scopes })
  return (specifier, importer) => {
    try {
      return resolve(specifier, map, importer).resolvedImport ?? undefined
    } catch {
      throw new Problem(`"${specifier}" cannot be resolved: ${file} maps it to no usable address`)
    }
  }
}

function parseMap(file: string, { imports, scopes }: z.output<typeof ImportMapFile>): ParsedImportMap {
  try {
    return parse({ imports, scopes } as Parameters<typeof parse>[0], urlOf(file))
  } catch (error) {
    throw new Problem(error instanceof Error ? error.message : String(error), { file })
  }
}

/** In deno.json, unlike in an import map, a package's entry also covers its subpaths. */
const subpaths = (imports: z.output<typeof Entries>) =>
  Object.fromEntries(
    Object.entries(imports).flatMap(([name, target]) => {
      const [, scheme, rest] = /^(npm|jsr):\/?([^/]+(?:\/[^/]+)?)$/.exec(target ?? '') ?? []
      const isWhole = rest && (rest.startsWith('@') ? rest.split('/').length === 2 : !rest.includes('/'))
      return isWhole && !name.endsWith('/') ? [[`${name}/`, `${scheme}:/${rest}/`]] : []
    }),
  )

const resolveUnmapped: ImportSettings['resolve'] = (specifier, importer) =>
  URL.parse(specifier, /^\.{0,2}\//.test(specifier) ? importer.href : undefined) ?? undefined
