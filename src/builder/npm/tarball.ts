import type { ParsedTarEntry } from 'modern-tar'
import { Problem } from '../build-problem.ts'
import { LIMITS } from '../limits.ts'
import { readTarGz } from '../tar-gz.ts'
import { PackageJson } from './package-json.ts'

/** The files of a package that a program can import. */
export interface Package {
  json: PackageJson
  /** Files by path from the root, without "./". */
  files: ReadonlyMap<string, Uint8Array<ArrayBuffer>>
  bytes: number
}

/** Files that programs never import. */
const UNUSED = /\.(map|md|markdown|d\.[cm]?ts|flow|tsbuildinfo)$/i

/**
 * Unpacks a tarball. `onBytes` is called before bytes are held in memory, and may throw a Problem. Rejects with
 * Problem.
 */
export async function unpack(
  name: string,
  tarball: Uint8Array<ArrayBuffer>,
  onBytes: (bytes: number) => void,
): Promise<Package> {
  const files = new Map<string, Uint8Array<ArrayBuffer>>()
  let entries = 0
  let unpackedBytes = 0
  const check = (isWithinLimit: boolean) => {
    if (!isWithinLimit) throw new Problem(`${name} is too large`)
  }
  const unpacked = (size: number) => {
    unpackedBytes += size
    check(unpackedBytes <= LIMITS.unpackedBytes)
  }
  try {
    await readTarGz(new Blob([tarball]).stream(), { unpacked }, (entry) => {
      entries += 1
      check(entries <= LIMITS.packageFiles)
      return addFile(entry, files, onBytes)
    })
  } catch (error) {
    throw error instanceof Problem ? error : new Problem(`The tarball of ${name} cannot be unpacked`)
  }
  return { json: readJson(name, files.get('package.json')), files, bytes: sizeOf(files) }
}

async function addFile(
  { header, body }: ParsedTarEntry,
  files: Map<string, Uint8Array<ArrayBuffer>>,
  onBytes: (bytes: number) => void,
): Promise<void> {
  // The first folder is usually "package", but may have any name.
  const path = header.name.replace(/^(?:\.\/)?[^/]*\//, '')
  if (header.type !== 'file' || UNUSED.test(path)) return body.cancel()
  onBytes(path.length + header.size)
  files.set(path, new Uint8Array(await new Response(body).arrayBuffer()))
}

function sizeOf(files: ReadonlyMap<string, Uint8Array>): number {
  let total = 0
  for (const [path, contents] of files) total += path.length + contents.byteLength
  return total
}

function readJson(name: string, contents: Uint8Array | undefined): PackageJson {
  try {
    return PackageJson.parse(JSON.parse(new TextDecoder().decode(contents)))
  } catch {
    throw new Problem(`${name} has no valid package.json`)
  }
}
