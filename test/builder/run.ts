import { convertV4MiniflareOptions, Miniflare } from 'miniflare'
import type { Image } from '../../src/builder/program-image.ts'

/** Runs the image of a function as a Worker of its own and returns its default export, as JSON. */
export async function defaultOf(image: Image): Promise<unknown> {
  const modules = Object.entries(image.modules).map(([path, module]) =>
    'js' in module
      ? { type: 'ESModule' as const, path, contents: module.js }
      : { type: 'CompiledWasm' as const, path, contents: 'wasm' in module ? Buffer.from(module.wasm, 'base64') : '' },
  )
  const entry = `import { start } from './${image.main}'
    export default { async fetch() {
      const { default: value } = await start()
      const given = typeof value === 'function' ? await value() : value
      return Response.json(given ?? null)
    } }`
  const miniflare = new Miniflare({
    ...convertV4MiniflareOptions({
      cf: false,
      modules: [{ type: 'ESModule', path: 'entry.js', contents: entry }, ...modules],
      compatibilityDate: '2026-11-01',
      compatibilityFlags: ['nodejs_compat'],
    }),
  })
  try {
    const response = await miniflare.dispatchFetch('http://program/')
    const text = await response.text()
    if (!response.ok) throw new Error(text)
    return JSON.parse(text)
  } finally {
    await miniflare.dispose()
  }
}
