import type { Size } from './program-size.ts'

/** WebAssembly cannot be inlined: it is loaded as modules beside the program. */
export function openWasmModules(size: Size) {
  const modules: Record<string, { wasm: string }> = {}
  return {
    modules,
    /** The specifier by which the program imports it. */
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
