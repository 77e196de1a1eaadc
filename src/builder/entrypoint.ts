import { parse as parseJsonc } from 'jsonc-parser'
import { exports as exportOf } from 'resolve.exports'
import { parse as parseToml } from 'smol-toml'
import type { Files } from './archive.ts'
import type { Issue } from './protocol.ts'

const EXTENSIONS = ['ts', 'mts', 'tsx', 'js', 'mjs', 'jsx', 'cjs']
const CONVENTIONS = ['index', 'main', 'src/index', 'src/main'].flatMap((stem) =>
  EXTENSIONS.map((extension) => `${stem}.${extension}`),
)
const CONDITIONS = ['workerd', 'worker', 'import', 'default']

export type Entrypoint = { path: string } | { issue: Issue }

/** Which file of a source is the program: the one that a configuration names, else one that is called so by convention. */
export function findEntrypoint(files: Files): Entrypoint {
  return configured(files) ?? conventional(files)
}

const WRANGLER: Record<string, (text: string) => unknown> = {
  'wrangler.jsonc': (text) => parseJsonc(text, [], { allowTrailingComma: true }),
  'wrangler.json': (text) => parseJsonc(text, [], { allowTrailingComma: true }),
  'wrangler.toml': parseToml,
}

function configured(files: Files): Entrypoint | undefined {
  for (const [file, parse] of Object.entries(WRANGLER)) {
    const config = read(files, file, parse)
    if (config && 'issue' in config) return config
    const main = config && fieldOf(config.value, 'main')
    if (typeof main === 'string') return named(files, file, main) ?? { issue: missing(file, main) }
  }
  return ofPackage(files)
}

/** Packages are made with a `main` that names a file which need not be there: then the convention decides. */
function ofPackage(files: Files): Entrypoint | undefined {
  const manifest = read(files, 'package.json', JSON.parse)
  if (!manifest || 'issue' in manifest) return manifest
  const exported = exportIn(manifest.value)
  if (exported !== undefined)
    return named(files, 'package.json', exported) ?? { issue: missing('package.json', exported) }
  const main = fieldOf(manifest.value, 'main')
  return typeof main === 'string' ? named(files, 'package.json', main) : undefined
}

function exportIn(manifest: unknown): string | undefined {
  if (!fieldOf(manifest, 'exports')) return undefined
  try {
    const [target] =
      exportOf({ name: '.', ...(manifest as object) }, '.', { unsafe: true, conditions: CONDITIONS }) ?? []
    return target
  } catch {
    return undefined
  }
}

function conventional(files: Files): Entrypoint {
  const path = CONVENTIONS.find((path) => files.has(path))
  if (path !== undefined) return { path }
  if (files.has('Dockerfile')) {
    return {
      issue: { message: 'A Dockerfile cannot be built here: set the runtime to node or deno', file: 'Dockerfile' },
    }
  }
  const message =
    'There is no entrypoint: name one as "main" in wrangler.jsonc, wrangler.toml or package.json, or add index.ts, index.js, main.ts or src/index.ts'
  return { issue: { message } }
}

const missing = (file: string, main: string): Issue => ({
  message: `The entrypoint ${main} is not in the source`,
  file,
})

function named(files: Files, file: string, main: string): Entrypoint | undefined {
  const url = new URL(main, `file:///${file}`)
  const path = decodeURI(url.pathname.slice(1))
  const candidates = [
    path,
    ...EXTENSIONS.flatMap((extension) => [`${path}.${extension}`, `${path}/index.${extension}`]),
  ]
  const found = candidates.find((candidate) => files.has(candidate))
  return found === undefined ? undefined : { path: found }
}

type Read = { value: unknown } | { issue: Issue }

function read(files: Files, file: string, parse: (text: string) => unknown): Read | undefined {
  const bytes = files.get(file)
  if (!bytes) return undefined
  try {
    return { value: parse(new TextDecoder().decode(bytes)) }
  } catch (error) {
    return { issue: { message: `It cannot be read: ${error instanceof Error ? error.message : String(error)}`, file } }
  }
}

const fieldOf = (value: unknown, name: string): unknown =>
  typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[name] : undefined
