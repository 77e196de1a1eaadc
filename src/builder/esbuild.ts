import * as esbuild from 'esbuild-wasm'
import wasm from 'esbuild-wasm/esbuild.wasm'

const nativeSetTimeout = globalThis.setTimeout

/**
 * Runs timers without a delay as microtasks. The bundler uses such a timer for each message, two for each module, and
 * a real one would take a millisecond.
 */
globalThis.setTimeout = ((work: () => void, ...rest: [delayMs?: number]) =>
  rest.length === 0 ? queueMicrotask(work) : nativeSetTimeout(work, ...rest)) as typeof setTimeout

let started: Promise<void> | undefined

/** Returns the bundler; the first build in an isolate starts it. */
export async function openBundler(): Promise<typeof esbuild> {
  started ??= esbuild.initialize({ wasmModule: wasm, worker: false }).catch((error) => {
    started = undefined
    throw error
  })
  await started
  return esbuild
}

/** Ends the bundler, which a stack overflow breaks for good. The next build starts it anew. */
export async function stopBundler(): Promise<void> {
  started = undefined
  await esbuild.stop()
}
