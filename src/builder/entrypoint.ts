import { exports as exportsOf } from 'resolve.exports'
import * as z from 'zod'
import { Problem } from './build-problem.ts'
import { readJson } from './json.ts'
import { findFile, type Source } from './source.ts'
import { readWrangler } from './wrangler.ts'

/** No configuration names one, and none is there by convention. */
export class NoEntrypoint extends Problem {}

const EXTENSIONS = ['ts', 'mts', 'tsx', 'js', 'mjs', 'jsx', 'cjs']
const CONVENTIONS = ['index', 'main', 'src/index', 'src/main'].flatMap((stem) =>
  EXTENSIONS.map((extension) => `${stem}.${extension}`),
)

/** Which file of a source is the program: the one that a configuration names, else one that is called so. Throws Problem. */
export function entrypointOf(source: Source): string {
  const found = ofWrangler(source) ?? ofPackage(source) ?? CONVENTIONS.find((path) => source.has(path))
  if (found !== undefined) return found
  if (source.has('Dockerfile')) {
    throw new Problem('A Dockerfile cannot be built here: use the runtime node or deno', { file: 'Dockerfile' })
  }
  throw new NoEntrypoint(
    'There is no entrypoint: name it as "main" in package.json, wrangler.jsonc or wrangler.toml, or add index.ts, index.js, main.ts or src/index.ts',
  )
}

const Package = z.looseObject({
  main: z.string().optional(),
  name: z.string().optional(),
  exports: z.unknown().optional(),
})

/** The program of a worker that has static assets alone, which is added to its source. */
export const ASSETS_ALONE = 'assets-alone.js'

function ofWrangler(source: Source): string | undefined {
  const { file, main, assets } = readWrangler(source) ?? {}
  if (file === undefined) return undefined
  // A main of package.json may be what a browser is to run.
  if (main === undefined) return assets && ASSETS_ALONE
  return fileOf(source, main) ?? refuseMissing(file, main)
}

const PACKAGE = 'package.json'

/** Packages are made with a `main` that need not be there: then the convention decides. */
function ofPackage(source: Source): string | undefined {
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
    throw new Problem('Its exports name no entrypoint for "."', { file: PACKAGE })
  }
}

const CONDITIONS = ['workerd', 'worker', 'import', 'default']

/** As written from the root of the source, where it must stay. */
const fileOf = (source: Source, path: string): string | undefined =>
  findFile(source, path.replace(/^(\.?\/)+/, '').replace(/\/$/, ''))

function refuseMissing(file: string, path: string): never {
  throw new Problem(`The entrypoint ${JSON.stringify(path)} is not in the source`, { file })
}
