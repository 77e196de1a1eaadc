import type { BuildOptions } from 'esbuild-wasm'
import { Issues, issuesOf } from './build-issues.ts'
import { openNetwork } from './build-network.ts'
import { Problem } from './build-problem.ts'
import { createBuildMutex } from './build-queue.ts'
import { openBundler, stopBundler } from './esbuild.ts'
import { type CompilerOptions, type ImportSettings, readImportSettings } from './import-map.ts'
import { LIMITS } from './limits.ts'
import { openLocalPackages } from './local-packages.ts'
import { openRegistry } from './npm/registry.ts'
import { openVersions } from './npm/versions.ts'
import { openPackageFiles, rootsOf } from './package-files.ts'
import { createModulePlugin, type Entry, META_NAME } from './plugin.ts'
import type { Image } from './program-image.ts'
import type { Size } from './program-size.ts'
import { openRemote } from './remote-modules.ts'
import type { Imports } from './resolve.ts'
import { type Bindings, readSettings } from './settings.ts'
import { type Source, sourcePath } from './source.ts'
import { NO_TSCONFIGS, openTsConfigs } from './tsconfig.ts'
import { openWasmModules } from './wasm-modules.ts'

export interface Program {
  source: Source
  /** Path of the entry module in the source. */
  entrypoint: string
  /** Path of an import map or a deno.json in the source. */
  importMap?: string
  /** Whether the bundle exports a `start` function that evaluates the program, instead of evaluating it on import. */
  isDeferred?: boolean
  /** Whether tsconfig.json files apply, as in programs written for bundlers. */
  hasTsConfigs?: boolean
}

/** The time limit exceeds that of any build: fetching is limited in time, and the runtime limits bundling. */
const runExclusive = createBuildMutex(LIMITS.seconds + 30)

/** Bundles a module with all its imports into one program. Rejects with Problem, Issues or Unavailable. */
export async function bundle(bindings: Bindings, program: Program, size: Size): Promise<Bundle> {
  const entrypoint = sourcePath(program.entrypoint)
  if (!program.source.has(entrypoint)) throw new Problem(`The entrypoint "${entrypoint}" is not in the source`)
  const settings = readImportSettings(program.source, entrypoint, program.importMap)
  // Imports are opened within the mutex, so that the time limit for fetching does not include the wait.
  return runExclusive(() =>
    run(importsOf(bindings, program, settings), { entrypoint, isDeferred: program.isDeferred ?? false }, size),
  )
}

type Bundle = Pick<Image, 'main' | 'modules'>

function importsOf(bindings: Bindings, { source, hasTsConfigs }: Program, settings: ImportSettings): Imports {
  const registries = readSettings(bindings)
  const network = openNetwork(bindings, registries)
  const packageFiles = openPackageFiles(source)
  return {
    source,
    settings,
    tsConfigs: hasTsConfigs ? openTsConfigs(source) : NO_TSCONFIGS,
    packageFiles,
    localPackages: openLocalPackages(source, packageFiles),
    versions: openVersions(openRegistry(network, registries), rootsOf(source)),
    remote: openRemote(network),
  }
}

async function run(imports: Imports, entry: Entry, size: Size): Promise<Bundle> {
  const { build } = await openBundler()
  const wasm = openWasmModules(size)
  const failures: unknown[] = []
  const plugin = createModulePlugin({ entry, imports, wasm, onFailure: (error) => failures.push(error) })
  try {
    const { outputFiles = [] } = await build({
      ...OPTIONS,
      ...typeScriptOptions({
        ...imports.tsConfigs.compilerOptions(entry.entrypoint),
        ...imports.settings.compilerOptions,
      }),
      entryPoints: [entry.entrypoint],
      plugins: [plugin],
    })
    const [file] = outputFiles
    size.text(file?.contents.byteLength ?? 0)
    const js = file?.text ?? ''
    return { main: MAIN, modules: { [MAIN]: { js }, ...wasm.modules } }
  } catch (error) {
    if (failures.length > 0) throw failures[0]
    const issues = issuesOf(error)
    if (issues.length > 0) throw new Issues(issues)
    await stopBundler()
    throw error
  }
}

const MAIN = 'program.js'

const OPTIONS = {
  bundle: true,
  write: false,
  format: 'esm',
  platform: 'neutral',
  // The engine does not support decorators and `using` yet.
  target: 'es2024',
  charset: 'utf8',
  logLevel: 'silent',
  define: {
    'import.meta': META_NAME,
    'process.env.NODE_ENV': '"production"',
    __dirname: '"/"',
    __filename: `"/${MAIN}"`,
  },
} satisfies BuildOptions

function typeScriptOptions({ jsx, ...others }: CompilerOptions): BuildOptions {
  // The runtime cannot run JSX, so modes that preserve it become the default transform.
  const known = jsx && (jsx === 'react' || jsx === 'react-jsxdev' ? jsx : 'react-jsx')
  return { tsconfigRaw: { compilerOptions: { ...others, jsx: known } } }
}
