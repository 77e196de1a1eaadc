import type { ImportKind, OnLoadResult, OnResolveArgs, OnResolveResult, Plugin } from 'esbuild-wasm'
import { Problem } from './build-problem.ts'
import { withFormatSuffix } from './module-format.ts'
import { loaderOf, type Module, nameOf } from './modules.ts'
import type { Kind } from './npm/entry.ts'
import { type Import, type Imports, resolveImport } from './resolve.ts'
import { textOf, urlOf } from './source.ts'
import type { WasmModules } from './wasm-modules.ts'

const NAMESPACE = 'module'
const META = 'meta'
const START = 'start'
/** Variable that replaces `import.meta`; each module that uses it imports its own. */
export const META_NAME = '__import_meta'

export interface Entry {
  /** Path in the source. */
  entrypoint: string
  /**
   * Whether the bundle exports `start`, which evaluates the program within a request, where more operations are
   * allowed.
   */
  isDeferred: boolean
}

interface Options {
  entry: Entry
  imports: Imports
  wasm: WasmModules
  /** Called with an error that is not the developer's fault; it ends the build. */
  onFailure(error: unknown): void
}

/** Plugin that resolves and loads modules for the bundler. */
export function createModulePlugin({ entry: { entrypoint, isDeferred }, imports, wasm, onFailure }: Options): Plugin {
  async function resolve(args: OnResolveArgs): Promise<OnResolveResult> {
    if (args.kind === 'entry-point' && isDeferred) return { path: entrypoint, namespace: START }
    const module = await target(args)
    if (module.kind === 'external') return { path: module.specifier, external: true }
    const name = nameOf(module)
    if (isWasm(name) && 'bytes' in module && !args.with.type) {
      return { path: await wasm.add(module.bytes), external: true }
    }
    const isPure = module.kind === 'package' && module.from.json.sideEffects === false
    const path = withFormatSuffix(module, name)
    return { path, namespace: NAMESPACE, pluginData: module, ...(isPure && { sideEffects: false }) }
  }

  function target({ path, kind, namespace, pluginData }: OnResolveArgs): Promise<Module> | Module {
    if (kind === 'entry-point' || namespace === START) {
      return { kind: 'source', path: entrypoint, bytes: imports.source.get(entrypoint) ?? new Uint8Array() }
    }
    return resolveImport(imports, importOf(path, kind, pluginData as Module))
  }

  function load(module: Exclude<Module, { kind: 'external' }>, type: string | undefined): OnLoadResult {
    const loader = loaderOf(module, type)
    const contents = module.kind === 'generated' ? module.js : withAddedLines(module.bytes, nameOf(module), loader)
    return { contents, loader, pluginData: module }
  }

  async function guarded<T extends OnResolveResult | OnLoadResult>(work: () => Promise<T> | T): Promise<T> {
    try {
      return await work()
    } catch (error) {
      if (!(error instanceof Problem)) onFailure(error)
      const { message, place } = error instanceof Problem ? error : { message: 'failed', place: {} }
      return { errors: [{ text: message, detail: place }] } as T
    }
  }

  return {
    name: 'modules',
    setup({ onResolve, onLoad }) {
      onResolve({ filter: /^meta:/ }, ({ path, pluginData }) => ({
        path,
        namespace: META,
        pluginData,
        sideEffects: false,
      }))
      onLoad({ filter: /.*/, namespace: META }, ({ pluginData }) => ({
        contents: metaOf(pluginData as Module, entrypoint),
        loader: 'js',
      }))
      onLoad({ filter: /.*/, namespace: START }, () => ({
        contents: 'export const start = () => import("program")',
        loader: 'js',
      }))
      onResolve({ filter: /.*/ }, (args) => guarded(() => resolve(args)))
      onLoad({ filter: /.*/, namespace: NAMESPACE }, (args) =>
        guarded(() => load(args.pluginData as Exclude<Module, { kind: 'external' }>, args.with.type)),
      )
    },
  }
}

const KINDS: Partial<Record<ImportKind, Kind>> = { 'require-call': 'require', 'require-resolve': 'require' }

const importOf = (specifier: string, kind: ImportKind, importer: Module): Import => ({
  specifier,
  importer,
  kind: KINDS[kind] ?? 'import',
  isLazy: kind !== 'import-statement',
})

const isWasm = (name: string) => /\.wasm(\?.*)?$/.test(name)

const SCRIPTS: readonly string[] = ['js', 'jsx', 'ts', 'tsx']
const META_WORD = Buffer.from('meta')
/** May also match a dynamic import after which a comment follows: an unused variable is removed. */
const USES_META = /\bimport\s*(?:\/[/*]|\.\s*(?:meta\b|\/[/*]))/
const JSX_SOURCE = Buffer.from('@jsxImportSource')
const JSX_RUNTIME = Buffer.from('@jsxRuntime')

/** Adds lines at the end, which keeps line numbers; imports are hoisted anyway. */
function withAddedLines(bytes: Uint8Array, name: string, loader: string): Uint8Array | string {
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const added: string[] = []
  if (SCRIPTS.includes(loader) && text.includes(META_WORD) && USES_META.test(textOf(bytes)))
    added.push(`import ${META_NAME} from ${JSON.stringify(`meta:${name}`)}`)
  // As in Deno, a comment with a JSX import source enables the automatic runtime.
  const isJsx = loader.endsWith('sx')
  if (isJsx && text.includes(JSX_SOURCE) && !text.includes(JSX_RUNTIME)) added.push('/** @jsxRuntime automatic */')
  return added.length === 0 ? bytes : [textOf(bytes), ...added].join('\n')
}

function metaOf(module: Module, entrypoint: string): string {
  const url = metaUrl(module)
  const path = url.startsWith('file:') ? decodeURIComponent(new URL(url).pathname) : undefined
  const fields = {
    url,
    main: module.kind === 'source' && module.path === entrypoint,
    ...(path && { filename: path, dirname: path.replace(/\/[^/]*$/, '') || '/' }),
  }
  return `export default { ...${JSON.stringify(fields)}, resolve: (to) => new URL(to, ${JSON.stringify(url)}).href }`
}

function metaUrl(module: Module): string {
  if (module.kind === 'source') return urlOf(module.path).href
  return module.kind === 'package' ? urlOf(`node_modules/${nameOf(module).replace(/^npm:/, '')}`).href : nameOf(module)
}
