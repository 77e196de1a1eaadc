import type { AssetFile, AssetManifest } from './asset-manifest.ts'
import { Problem } from './build-problem.ts'
import { LIMITS } from './limits.ts'
import { pathFrom, type Source } from './source.ts'
import type { AssetSettings } from './wrangler.ts'

/**
 * Unsupported files that configure how wrangler serves the others. Ignoring them would publish them, or the files they
 * hide.
 */
const UNSUPPORTED: Readonly<Record<string, string>> = {
  _headers: 'set headers in the program, with `assets.run_worker_first`',
  _redirects: 'redirect in the program, with `assets.run_worker_first`',
  '.assetsignore': 'do not put the files that it names into the archive',
}

export interface PackedAssets {
  /** JSON of an AssetManifest. */
  manifest: Uint8Array<ArrayBuffer>
  /** Files in the order of their offsets. */
  files: Uint8Array<ArrayBuffer>[]
}

/** Packs the static assets of a source. Rejects with Problem. */
export async function packAssets(source: Source, settings: AssetSettings): Promise<PackedAssets> {
  const found = filesIn(source, settings.directory)
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
    throw new Problem(
      `The list of static assets is larger than ${LIMITS.assetManifestBytes / 1024} KiB: use fewer files or shorter paths`,
    )
  }
  return { manifest: text, files: found.map(([, bytes]) => bytes) }
}

/** Returns the files of the directory with their paths from the root of the worker. */
function filesIn(source: Source, directory: string): [path: string, bytes: Uint8Array<ArrayBuffer>][] {
  const folder = pathFrom('', directory)
  if (folder === undefined || folder === '') {
    throw new Problem(`Invalid \`assets.directory\` ${JSON.stringify(directory)}: must be a folder within the source`)
  }
  const found = [...source].filter(([file]) => file.startsWith(`${folder}/`))
  if (found.length === 0)
    throw new Problem(`Invalid \`assets.directory\` ${JSON.stringify(directory)}: the folder has no files`)
  return found.map(([file, bytes]) => {
    const name = file.slice(folder.length + 1)
    const advice = Object.hasOwn(UNSUPPORTED, name) ? UNSUPPORTED[name] : undefined
    if (advice) throw new Problem(`\`${name}\` is not supported for static assets: ${advice}`, { file })
    if (bytes.byteLength > LIMITS.assetFileBytes) {
      throw new Problem(`The static asset is too large: must be at most ${LIMITS.assetFileBytes / 1024 ** 2} MiB`, {
        file,
      })
    }
    return [`/${name}`, bytes]
  })
}

async function tagOf(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  return Buffer.from(await crypto.subtle.digest('SHA-256', bytes)).toString('hex', 0, 16)
}
