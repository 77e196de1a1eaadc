import { createTarDecoder, type ParsedTarEntry } from 'modern-tar'
import { LIMITS } from '../limits.ts'
import { Problem } from '../problem.ts'
import { PackageJson } from './package-json.ts'

/** What a package holds that a program can import. */
export interface Package {
  json: PackageJson
  /** By path from its root, without "./". */
  files: ReadonlyMap<string, Uint8Array<ArrayBuffer>>
  bytes: number
}

/** Never imported while a program runs. */
const UNUSED = /\.(map|md|markdown|d\.[cm]?ts|flow|tsbuildinfo)$/i

export async function unpack(name: string, tarball: Uint8Array<ArrayBuffer>): Promise<Package> {
  const files = new Map<string, Uint8Array<ArrayBuffer>>()
  let bytes = 0
  const entries = new Blob([tarball])
    .stream()
    .pipeThrough(new DecompressionStream('gzip'))
    .pipeThrough(createTarDecoder())
  try {
    for await (const entry of entries) {
      bytes += entry.header.size
      if (bytes > LIMITS.unpackedBytes || files.size >= LIMITS.packageFiles) throw new Problem(`${name} is too large`)
      await keep(entry, files)
    }
  } catch (error) {
    throw error instanceof Problem ? error : new Problem(`The tarball of ${name} cannot be unpacked`)
  }
  return { json: readJson(name, files.get('package.json')), files, bytes: keptBytes(files) }
}

async function keep({ header, body }: ParsedTarEntry, files: Map<string, Uint8Array<ArrayBuffer>>): Promise<void> {
  // The first folder is "package" by custom alone.
  const path = header.name.replace(/^(?:\.\/)?[^/]*\//, '')
  if (header.type !== 'file' || UNUSED.test(path)) return body.cancel()
  files.set(path, new Uint8Array(await new Response(body).arrayBuffer()))
}

function keptBytes(files: ReadonlyMap<string, Uint8Array>): number {
  let total = 0
  for (const [path, contents] of files) total += path.length + contents.byteLength
  return total
}

function readJson(name: string, contents: Uint8Array | undefined): PackageJson {
  try {
    return PackageJson.parse(JSON.parse(new TextDecoder().decode(contents)))
  } catch {
    throw new Problem(`${name} has no usable package.json`)
  }
}
