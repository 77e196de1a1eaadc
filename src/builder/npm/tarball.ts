import { createTarDecoder, type ParsedTarEntry } from 'modern-tar'
import { countBytes } from '../../platform/archive/byte-counter.ts'
import { Problem } from '../build-problem.ts'
import { gunzip } from '../gunzip.ts'
import { LIMITS } from '../limits.ts'
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

/** Tells `onKept` of what it is about to hold in memory. Rejects with Problem, also with one that `onKept` throws. */
export async function unpack(
  name: string,
  tarball: Uint8Array<ArrayBuffer>,
  onKept: (bytes: number) => void,
): Promise<Package> {
  const files = new Map<string, Uint8Array<ArrayBuffer>>()
  const bounds = createBounds(name)
  try {
    for await (const entry of entriesOf(tarball, bounds)) {
      bounds.entry()
      await keep(entry, files, onKept)
    }
  } catch (error) {
    // A native stream in between tells that it failed, and not why.
    const problem = bounds.broken() ?? error
    throw problem instanceof Problem ? problem : new Problem(`The tarball of ${name} cannot be unpacked`)
  }
  return { json: readJson(name, files.get('package.json')), files, bytes: keptBytes(files) }
}

/** Counts what comes out, whatever the headers of the entries say. */
function createBounds(name: string) {
  let bytes = 0
  let entries = 0
  let broken: Problem | undefined
  const require = (holds: boolean) => {
    if (holds) return
    broken = new Problem(`${name} is too large`)
    throw broken
  }
  return {
    broken: () => broken,
    compressed: (size: number) => require(size <= LIMITS.tarballBytes),
    unpacked(size: number) {
      bytes += size
      require(bytes <= LIMITS.unpackedBytes)
    },
    entry() {
      entries += 1
      require(entries <= LIMITS.packageFiles)
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

async function keep(
  { header, body }: ParsedTarEntry,
  files: Map<string, Uint8Array<ArrayBuffer>>,
  onKept: (bytes: number) => void,
): Promise<void> {
  // The first folder is "package" by custom alone.
  const path = header.name.replace(/^(?:\.\/)?[^/]*\//, '')
  if (header.type !== 'file' || UNUSED.test(path)) return body.cancel()
  onKept(path.length + header.size)
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
