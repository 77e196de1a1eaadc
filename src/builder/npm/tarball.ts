import { createTarDecoder, type ParsedTarEntry } from 'modern-tar'
import { countBytes } from '../../platform/archive/byte-counter.ts'
import { Problem } from '../build-problem.ts'
import { gunzip } from '../gunzip.ts'
import { LIMITS } from '../limits.ts'
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
  const bounds = createBounds(name)
  try {
    for await (const entry of entriesOf(tarball, bounds)) {
      bounds.entry()
      await addFile(entry, files, onBytes)
    }
  } catch (error) {
    // The native stream in between reports only that it failed, not why.
    const cause = bounds.problem() ?? error
    throw cause instanceof Problem ? cause : new Problem(`The tarball of ${name} cannot be unpacked`)
  }
  return { json: readJson(name, files.get('package.json')), files, bytes: sizeOf(files) }
}

/** Counts the actual bytes, because the sizes in the headers of the entries may be false. */
function createBounds(name: string) {
  let bytes = 0
  let entries = 0
  let problem: Problem | undefined
  const check = (isWithinLimit: boolean) => {
    if (isWithinLimit) return
    problem = new Problem(`${name} is too large`)
    throw problem
  }
  return {
    problem: () => problem,
    compressed: (size: number) => check(size <= LIMITS.tarballBytes),
    unpacked(size: number) {
      bytes += size
      check(bytes <= LIMITS.unpackedBytes)
    },
    entry() {
      entries += 1
      check(entries <= LIMITS.packageFiles)
    },
  }
}
type Bounds = ReturnType<typeof createBounds>

const entriesOf = (
  tarball: Uint8Array<ArrayBuffer>,
  { compressed, unpacked }: Bounds,
): ReadableStream<ParsedTarEntry> =>
  new Blob([tarball])
    .stream()
    .pipeThrough(countBytes(compressed))
    .pipeThrough(gunzip())
    .pipeThrough(countBytes(unpacked))
    .pipeThrough(createTarDecoder())

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
