import * as esbuild from 'esbuild-wasm'
import wasm from 'esbuild-wasm/esbuild.wasm'

const later = globalThis.setTimeout

/** The bundler hands each of its messages over by a timer without a delay: a millisecond for each, two of them for each module. */
globalThis.setTimeout = ((work: () => void, ...rest: [delayMs?: number]) =>
  rest.length === 0 ? queueMicrotask(work) : later(work, ...rest)) as typeof setTimeout

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
