import { createTarDecoder, type ParsedTarEntry } from 'modern-tar'
import { countBytes } from '../platform/archive/byte-counter.ts'
import { readTarEntry } from '../platform/archive/tar-entry.ts'
import { Problem } from './build-problem.ts'
import { gunzip } from './gunzip.ts'
import { LIMITS } from './limits.ts'
import { pathProblem, type Source } from './source.ts'

const MiB = 1024 ** 2

const ARCHIVE_LIMITS = {
  compressedBytes: 32 * MiB,
  unpackedBytes: 128 * MiB,
  entries: 20_000,
  /** Unpacked against compressed, once it is worth a look. */
  ratio: 200,
  ratioFromBytes: 8 * MiB,
}

/** Installed and repository folders, as dependencies are resolved anew by the ranges of the package.json, and what macOS adds. */
const LEFT_OUT = /(^|\/)(node_modules|\.git|__MACOSX|\._[^/]*|\.DS_Store)(\/|$)/

/** The files of a .tar.gz, by their paths, in one pass and within bounds. Rejects with Problem. */
export async function unpack(body: ReadableStream<Uint8Array>): Promise<Source> {
  const bounds = createBounds()
  const files = new Map<string, Uint8Array<ArrayBuffer>>()
  try {
    for await (const entry of entriesOf(body, bounds)) {
      bounds.entry()
      const path = pathOf(entry)
      if (path === undefined || LEFT_OUT.test(path)) {
        await entry.body.cancel()
        continue
      }
      bounds.kept(entry.header.size)
      files.set(path, await readTarEntry(entry))
    }
  } catch (error) {
    // A native stream in between tells that it failed, and not why.
    const problem = bounds.broken() ?? error
    if (problem instanceof Problem) throw problem
    const reason = error instanceof Error ? error.message : String(error)
    throw new Problem(`The archive is no .tar.gz, or a damaged one: ${reason}`)
  }
  return files
}

/** Counts what passes, and throws where it is too much. */
function createBounds() {
  const { compressedBytes, unpackedBytes, entries, ratio, ratioFromBytes } = ARCHIVE_LIMITS
  const passed = { compressed: 0, unpacked: 0, kept: 0, files: 0, entries: 0 }
  let broken: Problem | undefined
  const require = (holds: boolean, what: string) => {
    if (holds) return
    broken = new Problem(`The archive ${what}`)
    throw broken
  }
  return {
    broken: () => broken,
    compressed(size: number) {
      passed.compressed += size
      require(passed.compressed <= compressedBytes, `is larger than ${compressedBytes / MiB} MiB`)
    },
    unpacked(size: number) {
      passed.unpacked += size
      require(passed.unpacked <= unpackedBytes, `unpacks to more than ${unpackedBytes / MiB} MiB`)
      const isDense = passed.unpacked <= ratio * passed.compressed
      require(isDense || passed.unpacked <= ratioFromBytes, `unpacks to more than ${ratio} times its size`)
    },
    entry() {
      passed.entries += 1
      require(passed.entries <= entries, `has more than ${entries} entries`)
    },
    kept(size: number) {
      passed.files += 1
      passed.kept += size
      require(passed.files <= LIMITS.sourceFiles, `has more than ${LIMITS.sourceFiles} files`)
      require(passed.kept <= LIMITS.sourceBytes, `has files of more than ${LIMITS.sourceBytes / MiB} MiB`)
    },
  }
}
type Bounds = ReturnType<typeof createBounds>

const entriesOf = (body: ReadableStream<Uint8Array>, bounds: Bounds): ReadableStream<ParsedTarEntry> =>
  body
    .pipeThrough(countBytes(bounds.compressed))
    .pipeThrough(gunzip())
    .pipeThrough(countBytes(bounds.unpacked))
    .pipeThrough(createTarDecoder({ strict: true }))

const NO_FILES: Record<string, string> = {
  link: 'a hard link',
  symlink: 'a symbolic link',
  'character-device': 'a device',
  'block-device': 'a device',
  fifo: 'a pipe',
}

/** Undefined for a folder. Throws Problem. */
function pathOf({ header: { name, type = 'file' } }: ParsedTarEntry): string | undefined {
  const shown = JSON.stringify(name.slice(0, 200))
  const path = name
    .replace(/^(\.\/)+/, '')
    .replace(/\/+/g, '/')
    .replace(/\/$/, '')
  if (path === '' || path === '.') return undefined
  const problem = pathProblem(path)
  if (problem) throw new Problem(`The path ${shown} in the archive ${problem}`)
  if (type === 'directory') return undefined
  // Whoever packs installed dependencies packs their links with them, and none of these is taken.
  if (NO_FILES[type] && !LEFT_OUT.test(path)) throw new Problem(`The archive has ${NO_FILES[type]}: ${shown}`)
  return path
}
