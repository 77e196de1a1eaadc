import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { convertV4MiniflareOptions, Miniflare } from 'miniflare'
import { buildWorker } from './bundle.ts'
import { describeFailure } from './lifetime.ts'
import { modulesOf } from './worker.ts'

const KIB = 1024
/** Limits for the API's Worker: its compressed size, and the time until it can answer. */
const COMPRESSED_KIB_MAX = 1_024
const START_MS_MAX = 100
const STARTS = 15

/** Bundles both Workers. Fails if the API's is too large; its start time depends on the machine and is only printed. */
async function check(): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'pilothouse-bundle-'))
  try {
    await buildWorker({ folder })
    const modules = await modulesOf(folder)
    const compressed = modules.reduce((total, { contents }) => total + gzipSync(contents).byteLength, 0) / KIB
    const ms = await startMs(modules)
    console.log(`compressed   ${compressed.toFixed(0)} KiB of at most ${COMPRESSED_KIB_MAX}`)
    console.log(`start        ${ms.toFixed(0)} ms; should be at most ${START_MS_MAX}`)
    const builder = gzipSync(await readFile(join(folder, 'builder', 'index.js'))).byteLength / KIB
    console.log(`builder      ${builder.toFixed(0)} KiB, without its bundler in WebAssembly`)
    if (compressed <= COMPRESSED_KIB_MAX) return
    console.error(`The Worker is larger than ${COMPRESSED_KIB_MAX} KiB: what was imported last?`)
    process.exitCode = 1
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

type Modules = Awaited<ReturnType<typeof modulesOf>>

/** Time of the fastest of several starts, each in a new isolate, minus the time for an empty program. */
async function startMs(modules: Modules): Promise<number> {
  const miniflare = new Miniflare(
    convertV4MiniflareOptions({
      cf: false,
      compatibilityDate: '2026-11-01',
      modules: [{ type: 'ESModule', path: 'host.js', contents: HOST }],
      workerLoaders: { LOADER: {} },
    }),
  )
  try {
    await miniflare.ready
    const program = JSON.stringify(
      Object.fromEntries(modules.map(({ type, path, contents }) => [path, [type, contents]])),
    )
    await miniflare.dispatchFetch('http://host/', { method: 'POST', body: program })
    const timed = async (what: string) => {
      let best = Number.POSITIVE_INFINITY
      for (let n = 0; n < STARTS; n += 1) {
        const startedAt = performance.now()
        const response = await miniflare.dispatchFetch(`http://host/${what}`)
        if (!response.ok) throw new Error(`The Worker does not start: ${await response.text()}`)
        best = Math.min(best, performance.now() - startedAt)
      }
      return best
    }
    const empty = await timed('empty')
    return Math.max(0, (await timed('program')) - empty)
  } finally {
    await miniflare.dispose()
  }
}

const HOST = `
  const MAIN = { js: "import './index.js'; export default { fetch: () => new Response() }" }
  const modules = { empty: { 'index.js': { js: '' } } }
  const KINDS = { ESModule: 'js', Text: 'text' }
  export default {
    async fetch(request, { LOADER }) {
      if (request.method === 'POST') {
        const sent = Object.entries(await request.json()).map(([path, [type, contents]]) => [path, { [KINDS[type]]: contents }])
        modules.program = Object.fromEntries(sent)
        return new Response()
      }
      const code = {
        compatibilityDate: '2026-11-01',
        compatibilityFlags: ['nodejs_compat'],
        mainModule: 'start.js',
        modules: { ...modules[new URL(request.url).pathname.slice(1)], 'start.js': MAIN },
      }
      try {
        return await LOADER.load(code).getEntrypoint().fetch('http://program/')
      } catch (error) {
        return new Response(error.message, { status: 500 })
      }
    },
  }`

check().catch((error) => {
  console.error(describeFailure(error))
  process.exitCode = 1
})
