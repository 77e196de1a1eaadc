import { unpack } from './archive.ts'
import { type PackedAssets, packAssets } from './assets.ts'
import { Problem } from './build-problem.ts'
import { bundle } from './bundle.ts'
import { ASSETS_ONLY_ENTRY, entrypointOf, NoEntrypoint } from './entrypoint.ts'
import type { Image } from './program-image.ts'
import { openSize } from './program-size.ts'
import { BUILT_HEADER, type BuiltWorker } from './protocol.ts'
import type { Bindings } from './settings.ts'
import type { Source } from './source.ts'
import { type WorkerSettings, workerSettings } from './wrangler.ts'

/** Builds a worker from its build context, a .tar.gz. BUILT_HEADER describes the response. */
export async function buildWorker(bindings: Bindings, body: ReadableStream<Uint8Array> | null): Promise<Response> {
  if (!body) throw new Problem('The archive is empty')
  const { source, entrypoint } = findRoot(await unpack(body))
  const settings = workerSettings(source, new Date())
  const assets = settings.assets && (await packAssets(source, settings.assets))
  const program = { source: withProgram(source, settings), entrypoint, hasTsConfigs: true, isDeferred: true }
  const image: Image = {
    ...(await bundle(bindings, program, openSize())),
    files: {},
    vars: settings.vars,
    ...(assets && { assets: { binding: bindingOf(settings), sha256: await digestOf(assets) } }),
  }
  return responseOf(image, settings.crons, assets)
}

/** No secret can have this name. */
const BINDING = '=assets'
const ASSETS_PROGRAM = `export default { fetch: (request, env) => env['${BINDING}'].fetch(request) }`

const hasAssetsOnly = ({ assets }: WorkerSettings): boolean => assets?.hasProgram === false

const bindingOf = (settings: WorkerSettings) => (hasAssetsOnly(settings) ? BINDING : settings.assets?.binding)

const withProgram = (source: Source, settings: WorkerSettings): Source =>
  hasAssetsOnly(settings) ? new Map(source).set(ASSETS_ONLY_ENTRY, Buffer.from(ASSETS_PROGRAM)) : source

async function digestOf({ manifest }: PackedAssets): Promise<string> {
  return Buffer.from(await crypto.subtle.digest('SHA-256', manifest)).toString('hex')
}

function responseOf(image: Image, crons: string[], assets: PackedAssets | undefined): Response {
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

/** Streams the parts one by one, without joining them in memory. */
function streamOf(parts: readonly Uint8Array[]): ReadableStream<Uint8Array> {
  const remaining = parts.filter(({ byteLength }) => byteLength > 0).values()
  return new ReadableStream({
    pull(controller) {
      const { value } = remaining.next()
      if (value) controller.enqueue(value)
      else controller.close()
    },
  })
}

/** Finds the root of the source: some archives contain a single folder with everything in it. */
function findRoot(source: Source): { source: Source; entrypoint: string } {
  try {
    return { source, entrypoint: entrypointOf(source) }
  } catch (error) {
    const inner = contentsOfOnlyFolder(source)
    if (!(error instanceof NoEntrypoint) || !inner) throw error
    return { source: inner, entrypoint: entrypointOf(inner) }
  }
}

function contentsOfOnlyFolder(source: Source): Source | undefined {
  const paths = Array.from(source.keys())
  const [folder] = /^[^/]+\//.exec(paths[0] ?? '') ?? []
  if (folder === undefined || !paths.every((path) => path.startsWith(folder))) return undefined
  return new Map(Array.from(source, ([path, bytes]) => [path.slice(folder.length), bytes]))
}
