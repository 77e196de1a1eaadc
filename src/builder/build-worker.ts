import { unpack } from './archive.ts'
import { type PackedAssets, packAssets } from './assets.ts'
import { Problem } from './build-problem.ts'
import { bundle } from './bundle.ts'
import { ASSETS_ALONE, entrypointOf, NoEntrypoint } from './entrypoint.ts'
import type { Image } from './program-image.ts'
import { openSize } from './program-size.ts'
import { BUILT_HEADER, type BuiltWorker } from './protocol.ts'
import type { Bindings } from './settings.ts'
import type { Source } from './source.ts'
import { type WorkerSettings, workerSettings } from './wrangler.ts'

/** Builds a worker of its build context, a .tar.gz. The answer is described at BUILT_HEADER. */
export async function buildWorker(bindings: Bindings, body: ReadableStream<Uint8Array> | null): Promise<Response> {
  if (!body) throw new Problem('The archive is empty')
  const { source, entrypoint } = rooted(await unpack(body))
  const settings = workerSettings(source, new Date())
  const assets = settings.assets && (await packAssets(source, settings.assets))
  const program = { source: withProgram(source, settings), entrypoint, hasTsConfigs: true, isDeferred: true }
  const image: Image = {
    ...(await bundle(bindings, program, openSize())),
    files: {},
    vars: settings.vars,
    ...(assets && { assets: { binding: bindingOf(settings), sha256: await digestOf(assets) } }),
  }
  return answer(image, settings.crons, assets)
}

const BINDING = 'ASSETS'
const ASSETS_PROGRAM = `export default { fetch: (request, env) => env.${BINDING}.fetch(request) }`

const isAlone = ({ assets }: WorkerSettings): boolean => assets?.hasProgram === false

const bindingOf = (settings: WorkerSettings) => (isAlone(settings) ? BINDING : settings.assets?.binding)

const withProgram = (source: Source, settings: WorkerSettings): Source =>
  isAlone(settings) ? new Map(source).set(ASSETS_ALONE, Buffer.from(ASSETS_PROGRAM)) : source

async function digestOf({ manifest }: PackedAssets): Promise<string> {
  return Buffer.from(await crypto.subtle.digest('SHA-256', manifest)).toString('hex')
}

function answer(image: Image, crons: string[], assets: PackedAssets | undefined): Response {
  const text = Buffer.from(JSON.stringify(image))
  const packed = assets ? [assets.manifest, ...assets.files] : []
  const built: BuiltWorker = {
    crons,
    imageBytes: text.byteLength,
    ...(assets && { assets: { manifestBytes: assets.manifest.byteLength, bytes: bytesIn(packed) } }),
  }
  const headers = { 'content-type': 'application/octet-stream', [BUILT_HEADER]: JSON.stringify(built) }
  return new Response(streamOf([text, ...packed]), { headers })
}

const bytesIn = (parts: readonly Uint8Array[]): number => parts.reduce((sum, { byteLength }) => sum + byteLength, 0)

/** Without a copy of them all. */
function streamOf(parts: readonly Uint8Array[]): ReadableStream<Uint8Array> {
  const left = parts.filter(({ byteLength }) => byteLength > 0).values()
  return new ReadableStream({
    pull(controller) {
      const { value } = left.next()
      if (value) controller.enqueue(value)
      else controller.close()
    },
  })
}

/** Archives are often made of a folder from outside of it, and then hold it alone. */
function rooted(source: Source): { source: Source; entrypoint: string } {
  try {
    return { source, entrypoint: entrypointOf(source) }
  } catch (error) {
    const inside = onlyFolder(source)
    if (!(error instanceof NoEntrypoint) || !inside) throw error
    return { source: inside, entrypoint: entrypointOf(inside) }
  }
}

function onlyFolder(source: Source): Source | undefined {
  const paths = Array.from(source.keys())
  const [folder] = /^[^/]+\//.exec(paths[0] ?? '') ?? []
  if (folder === undefined || !paths.every((path) => path.startsWith(folder))) return undefined
  return new Map(Array.from(source, ([path, bytes]) => [path.slice(folder.length), bytes]))
}
