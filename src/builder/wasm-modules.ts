import type { Size } from './program-size.ts'

/** Collects WebAssembly modules, which cannot be inlined into the bundle. */
export function openWasmModules(size: Size) {
  const modules: Record<string, { wasm: string }> = {}
  return {
    modules,
    /** Adds a module and returns the specifier to import it by. */
    async add(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
      const digest = Buffer.from(await crypto.subtle.digest('SHA-256', bytes)).toString('hex')
      const name = `${digest.slice(0, 32)}.wasm`
      if (!modules[name]) size.base64(bytes.byteLength)
      modules[name] ??= { wasm: Buffer.from(bytes).toString('base64') }
      return `./${name}`
    },
  }
}
export type WasmModules = ReturnType<typeof openWasmModules>
