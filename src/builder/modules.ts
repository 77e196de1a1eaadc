import type { Loader } from 'esbuild-wasm'
import { Problem } from './build-problem.ts'
import type { Installed } from './npm/versions.ts'

type Bytes = Uint8Array<ArrayBuffer>

/** The target of an import. */
export type Module =
  | { kind: 'source'; path: string; bytes: Bytes }
  | { kind: 'remote'; url: string; bytes: Bytes; contentType: string }
  | { kind: 'package'; from: Installed; path: string; bytes: Bytes }
  /** Code written by the builder, with a name for messages. */
  | { kind: 'generated'; name: string; js: string }
  /** A module of the runtime. */
  | { kind: 'external'; specifier: string }

export const EMPTY: Module = { kind: 'generated', name: 'empty', js: '' }

/** Unique name of a module within the bundle; messages use it too. */
export function nameOf(module: Module): string {
  switch (module.kind) {
    case 'source':
      return module.path
    case 'remote':
      return module.url
    case 'package':
      return `npm:${module.from.name}@${module.from.version}/${module.path}`
    case 'generated':
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
const TEXT_EXTENSIONS = [
  'txt',
  'html',
  'htm',
  'sql',
  'md',
  'css',
  'svg',
  'csv',
  'xml',
  'graphql',
  'gql',
  'yaml',
  'yml',
  'toml',
]
for (const extension of TEXT_EXTENSIONS) LOADERS[extension] = 'text'

const BY_ATTRIBUTE: Record<string, Loader> = { json: 'json', text: 'text', bytes: 'binary' }

const BY_CONTENT_TYPE: readonly [RegExp, Loader][] = [
  [/typescript|video\/mp2t/, 'ts'],
  [/\btsx\b/, 'tsx'],
  [/\bjsx\b/, 'jsx'],
  [/\bjson\b/, 'json'],
  [/javascript|ecmascript/, 'js'],
]

/** Chooses the loader of a module; `type` is the import attribute. */
export function loaderOf(module: Exclude<Module, { kind: 'external' }>, type: string | undefined): Loader {
  if (module.kind === 'generated') return 'js'
  if (type !== undefined) return byAttribute(type)
  const name = module.kind === 'remote' ? pathnameOf(module.url) : module.path
  const byName = LOADERS[/\.([^./]+)$/.exec(name)?.[1]?.toLowerCase() ?? '']
  if (byName) return byName
  if (module.kind === 'package') return 'js'
  if (module.kind === 'remote' && /^data:text\/plain\b/i.test(module.url)) return 'text'
  if (module.kind === 'remote')
    return BY_CONTENT_TYPE.find(([pattern]) => pattern.test(module.contentType))?.[1] ?? 'js'
  throw new Problem(`"${name}" is not a module: import it with { type: 'text' } or { type: 'bytes' }`)
}

/** Path in an address; '' for data:, whose type says what it is. */
export const pathnameOf = (url: string): string => (url.startsWith('data:') ? '' : new URL(url).pathname)

function byAttribute(type: string): Loader {
  const loader = BY_ATTRIBUTE[type]
  if (!loader) throw new Problem(`Invalid import attribute type '${type}': must be 'json', 'text' or 'bytes'`)
  return loader
}
