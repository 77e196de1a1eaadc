import * as esbuild from 'esbuild-wasm'
import wasm from 'esbuild-wasm/esbuild.wasm'

let started: Promise<void> | undefined

/** The bundler, started with the first build of an isolate. */
export async function openBundler(): Promise<typeof esbuild> {
  started ??= esbuild.initialize({ wasmModule: wasm, worker: false }).catch((error) => {
    started = undefined
    throw error
  })
  await started
  return esbuild
}
