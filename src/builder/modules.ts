import type { Loader } from 'esbuild-wasm'
import { Problem } from './build-problem.ts'
import type { Installed } from './npm/versions.ts'

type Bytes = Uint8Array<ArrayBuffer>

/** What an import can stand for. */
export type Module =
  | { kind: 'source'; path: string; bytes: Bytes }
  | { kind: 'remote'; url: string; bytes: Bytes; contentType: string }
  | { kind: 'package'; from: Installed; path: string; bytes: Bytes }
  /** Written here, under a name for messages. */
  | { kind: 'ours'; name: string; js: string }
  /** Of the runtime itself. */
  | { kind: 'external'; specifier: string }

export const EMPTY: Module = { kind: 'ours', name: 'empty', js: '' }

/** The identity of a module within the bundle, and how messages name it. */
export function nameOf(module: Module): string {
  switch (module.kind) {
    case 'source':
      return module.path
    case 'remote':
      return module.url
    case 'package':
      return `npm:${module.from.name}@${module.from.version}/${module.path}`
    case 'ours':
      return module.name
    case 'external':
      return module.specifier
  }
}

const LOADERS: Record<string, Loader> = {
  ts: 'ts',
  mts: 'ts',
  cts: 'ts',
  tsx: 'tsx',
  jsx: 'jsx',
  js: 'js',
  mjs: 'js',
  cjs: 'js',
  json: 'json',
}
const TEXTS = ['txt', 'html', 'htm', 'sql', 'md', 'css', 'svg', 'csv', 'xml', 'graphql', 'gql', 'yaml', 'yml', 'toml']
for (const extension of TEXTS) LOADERS[extension] = 'text'

const BY_ATTRIBUTE: Record<string, Loader> = { json: 'json', text: 'text', bytes: 'binary' }

const BY_CONTENT_TYPE: readonly [RegExp, Loader][] = [
  [/typescript|video\/mp2t/, 'ts'],
  [/\btsx\b/, 'tsx'],
  [/\bjsx\b/, 'jsx'],
  [/\bjson\b/, 'json'],
  [/javascript|ecmascript/, 'js'],
]

/** How a module is read; `type` is that of the import's attributes. */
export function loaderOf(module: Exclude<Module, { kind: 'external' }>, type: string | undefined): Loader {
  if (module.kind === 'ours') return 'js'
  if (type !== undefined) return byAttribute(type)
  const name = module.kind === 'remote' ? new URL(module.url).pathname : module.path
  const byName = LOADERS[/\.([^./]+)$/.exec(name)?.[1]?.toLowerCase() ?? '']
  if (byName) return byName
  if (module.kind === 'package') return 'js'
  if (module.kind === 'remote')
    return BY_CONTENT_TYPE.find(([pattern]) => pattern.test(module.contentType))?.[1] ?? 'js'
  throw new Problem(`"${name}" is no module: import it with { type: 'text' } or { type: 'bytes' }`)
}

function byAttribute(type: string): Loader {
  const loader = BY_ATTRIBUTE[type]
  if (!loader) throw new Problem(`Modules are imported with { type: 'json' }, 'text' or 'bytes', and not '${type}'`)
  return loader
}
