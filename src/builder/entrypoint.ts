import { exports as exportsOf } from 'resolve.exports'
import * as z from 'zod'
import { Problem } from './build-problem.ts'
import { readJson } from './json.ts'
import { findFile, type Source } from './source.ts'
import { readWrangler } from './wrangler.ts'

/** No configuration names an entrypoint, and no file has a conventional name. */
export class NoEntrypoint extends Problem {}

const EXTENSIONS = ['ts', 'mts', 'tsx', 'js', 'mjs', 'jsx', 'cjs']
const CONVENTIONS = ['index', 'main', 'src/index', 'src/main'].flatMap((stem) =>
  EXTENSIONS.map((extension) => `${stem}.${extension}`),
)

/**
 * Returns the entrypoint of a source: the one that a configuration names, else a file with a conventional name. Throws
 * Problem.
 */
export function entrypointOf(source: Source): string {
  const found = fromWrangler(source) ?? fromPackageJson(source) ?? CONVENTIONS.find((path) => source.has(path))
  if (found !== undefined) return found
  if (source.has('Dockerfile')) {
    throw new Problem('Dockerfiles are not supported: use the runtime node or deno', { file: 'Dockerfile' })
  }
  throw new NoEntrypoint(
    'The source has no entrypoint: set "main" in package.json, wrangler.jsonc or wrangler.toml, or add index.ts, index.js, main.ts or src/index.ts',
  )
}

const Package = z.looseObject({
  main: z.string().optional(),
  name: z.string().optional(),
  exports: z.unknown().optional(),
})

/** Path of the generated program of a worker that has only static assets. */
export const ASSETS_ONLY_ENTRY = 'assets-alone.js'

function fromWrangler(source: Source): string | undefined {
  const { file, main, assets } = readWrangler(source) ?? {}
  if (file === undefined) return undefined
  // `main` of package.json is not used here: it may be code for browsers.
  if (main === undefined) return assets && ASSETS_ONLY_ENTRY
  return fileOf(source, main) ?? refuseMissing(file, main)
}

const PACKAGE = 'package.json'

/** A missing `main` file is ignored, as generators write a `main` that need not exist. */
function fromPackageJson(source: Source): string | undefined {
  if (!source.has(PACKAGE)) return undefined
  const manifest = readJson(source, PACKAGE, Package)
  const exported = exportIn(manifest)
  if (exported !== undefined) return fileOf(source, exported) ?? refuseMissing(PACKAGE, exported)
  return manifest.main === undefined ? undefined : fileOf(source, manifest.main)
}

function exportIn({ exports, name = 'worker' }: z.output<typeof Package>): string | undefined {
  if (exports === undefined || exports === null) return undefined
  try {
    const [target] = exportsOf({ name, exports }, '.', { unsafe: true, conditions: CONDITIONS }) ?? []
    return target
  } catch {
    throw new Problem('Invalid `exports`: must name an entrypoint for "."', { file: PACKAGE })
  }
}

const CONDITIONS = ['workerd', 'worker', 'import', 'default']

/** Finds a file by a path from the root of the source. */
const fileOf = (source: Source, path: string): string | undefined =>
  findFile(source, path.replace(/^(\.?\/)+/, '').replace(/\/$/, ''))

function refuseMissing(file: string, path: string): never {
  throw new Problem(`The entrypoint ${JSON.stringify(path)} is not in the source`, { file })
}
