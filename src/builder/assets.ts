import type { AssetFile, AssetManifest } from './asset-manifest.ts'
import { Problem } from './build-problem.ts'
import { LIMITS } from './limits.ts'
import { pathFrom, type Source } from './source.ts'
import type { AssetSettings } from './wrangler.ts'

/** Files that tell wrangler how to serve the others; ignored, they would be served themselves, or hide nothing. */
const NOT_SERVED: Readonly<Record<string, string>> = {
  _headers: 'set headers in the program, with `assets.run_worker_first`',
  _redirects: 'redirect in the program, with `assets.run_worker_first`',
  '.assetsignore': 'leave the files that it names out of the archive',
}

export interface PackedAssets {
  /** JSON of an AssetManifest. */
  manifest: Uint8Array<ArrayBuffer>
  /** In the order of their offsets. */
  files: Uint8Array<ArrayBuffer>[]
}

/** The static assets of a source. Rejects with Problem. */
export async function packAssets(source: Source, settings: AssetSettings): Promise<PackedAssets> {
  const found = filesBelow(source, settings.directory)
  const files: Record<string, AssetFile> = {}
  let offset = 0
  for (const [path, bytes] of found) {
    files[path] = [offset, bytes.byteLength, await tagOf(bytes)]
    offset += bytes.byteLength
  }
  const manifest: AssetManifest = {
    htmlHandling: settings.html_handling,
    notFoundHandling: settings.not_found_handling,
    runWorkerFirst: settings.run_worker_first,
    hasProgram: settings.hasProgram,
    files,
  }
  const text = Buffer.from(JSON.stringify(manifest))
  if (text.byteLength > LIMITS.assetManifestBytes) {
    throw new Problem(`The paths of the static assets take more than ${LIMITS.assetManifestBytes / 1024} KiB`)
  }
  return { manifest: text, files: found.map(([, bytes]) => bytes) }
}

/** By their paths from the root of the worker. */
function filesBelow(source: Source, directory: string): [path: string, bytes: Uint8Array<ArrayBuffer>][] {
  const folder = pathFrom('', directory)
  if (folder === undefined || folder === '') {
    throw new Problem(`\`assets.directory\` must be a folder within the source, and not ${JSON.stringify(directory)}`)
  }
  const found = [...source].filter(([file]) => file.startsWith(`${folder}/`))
  if (found.length === 0) throw new Problem(`\`assets.directory\` ${JSON.stringify(directory)} has no files`)
  return found.map(([file, bytes]) => {
    const name = file.slice(folder.length + 1)
    const advice = Object.hasOwn(NOT_SERVED, name) ? NOT_SERVED[name] : undefined
    if (advice) throw new Problem(`\`${name}\` is not offered for static assets: ${advice}`, { file })
    if (bytes.byteLength > LIMITS.assetFileBytes) {
      throw new Problem(`A static asset may have at most ${LIMITS.assetFileBytes / 1024 ** 2} MiB`, { file })
    }
    return [`/${name}`, bytes]
  })
}

async function tagOf(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  return Buffer.from(await crypto.subtle.digest('SHA-256', bytes)).toString('hex', 0, 16)
}
