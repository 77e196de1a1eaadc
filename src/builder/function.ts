import type { Loader, Message, Plugin } from 'esbuild-wasm'
import { openBundler } from './esbuild.ts'
import type { BuildResult, FunctionBuild, Issue } from './protocol.ts'

type Files = ReadonlyMap<string, Uint8Array>

const MAIN = 'function.js'
const NAMESPACE = 'source'

export async function buildFunction({ entrypoint }: FunctionBuild, files: Files): Promise<BuildResult> {
  const { build } = await openBundler()
  try {
    const { outputFiles } = await build({
      entryPoints: [entrypoint],
      bundle: true,
      write: false,
      format: 'esm',
      target: 'esnext',
      logLevel: 'silent',
      plugins: [sourceOf(files)],
    })
    return { image: { main: MAIN, modules: { [MAIN]: { js: outputFiles[0]?.text ?? '' } }, files: {} } }
  } catch (error) {
    const issues = issuesOf(error)
    if (issues.length === 0) throw error
    return { issues }
  }
}

/** The files that were sent, and nothing else. */
const sourceOf = (files: Files): Plugin => ({
  name: NAMESPACE,
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /.*/ }, ({ path, importer, kind }) => {
      if (path.startsWith('node:') || path.startsWith('cloudflare:')) return { path, external: true }
      const target = kind === 'entry-point' ? path : decodeURI(new URL(path, `file:///${importer}`).pathname.slice(1))
      return { path: target, namespace: NAMESPACE }
    })
    onLoad({ filter: /.*/, namespace: NAMESPACE }, ({ path }) => {
      const contents = files.get(path)
      return contents ? { contents, loader: loaderOf(path) } : { errors: [{ text: `Module not found "${path}"` }] }
    })
  },
})

const LOADERS: Record<string, Loader> = {
  ts: 'ts',
  mts: 'ts',
  tsx: 'tsx',
  jsx: 'jsx',
  json: 'json',
  txt: 'text',
}
const loaderOf = (path: string): Loader => LOADERS[path.split('.').at(-1) ?? ''] ?? 'js'

function issuesOf(error: unknown): Issue[] {
  const messages = error instanceof Error && 'errors' in error ? (error.errors as Message[]) : []
  return messages.map(({ text, location }) => ({
    message: text,
    ...(location && {
      file: location.file.replace(`${NAMESPACE}:`, ''),
      line: location.line,
      column: location.column + 1,
    }),
  }))
}
