import type { ParsedTarEntry } from 'modern-tar'
import { readTarEntry } from '../platform/archive/tar-entry.ts'
import { Problem } from './build-problem.ts'
import { LIMITS } from './limits.ts'
import { pathProblem, type Source } from './source.ts'
import { readTarGz } from './tar-gz.ts'

const MiB = 1024 ** 2

const ARCHIVE_LIMITS = {
  compressedBytes: 32 * MiB,
  unpackedBytes: 128 * MiB,
  entries: 20_000,
  /** Maximum ratio of unpacked to compressed bytes, checked from `ratioFromBytes` on. */
  ratio: 200,
  ratioFromBytes: 8 * MiB,
}

/**
 * Ignored paths: installed dependencies (they are resolved again from package.json), repositories and files that macOS
 * adds.
 */
const IGNORED = /(^|\/)(node_modules|\.git|__MACOSX|\._[^/]*|\.DS_Store)(\/|$)/

/** Reads the files of a .tar.gz in one pass, within limits. Rejects with Problem. */
export async function unpack(body: ReadableStream<Uint8Array>): Promise<Source> {
  const limits = createLimits()
  const files = new Map<string, Uint8Array<ArrayBuffer>>()
  try {
    await readTarGz(body, { ...limits, isStrict: true }, async (entry) => {
      limits.entry()
      const path = pathOf(entry)
      if (path === undefined || IGNORED.test(path)) return entry.body.cancel()
      limits.file(entry.header.size)
      files.set(path, await readTarEntry(entry))
    })
  } catch (error) {
    if (error instanceof Problem) throw error
    const reason = error instanceof Error ? error.message : String(error)
    throw new Problem(`Invalid archive: must be an intact .tar.gz file${reason && ` (${reason})`}`)
  }
  return files
}

/** Counts what passes through, and throws when a limit is exceeded. */
function createLimits() {
  const { compressedBytes, unpackedBytes, entries, ratio, ratioFromBytes } = ARCHIVE_LIMITS
  const passed = { packed: 0, unpacked: 0, fileBytes: 0, files: 0, entries: 0 }
  const check = (isWithinLimit: boolean, what: string) => {
    if (!isWithinLimit) throw new Problem(`The archive ${what}`)
  }
  return {
    packed(size: number) {
      passed.packed += size
      check(passed.packed <= compressedBytes, `is larger than ${compressedBytes / MiB} MiB`)
    },
    unpacked(size: number) {
      passed.unpacked += size
      check(passed.unpacked <= unpackedBytes, `unpacks to more than ${unpackedBytes / MiB} MiB`)
      const isWithinRatio = passed.unpacked <= ratio * passed.packed
      check(isWithinRatio || passed.unpacked <= ratioFromBytes, `unpacks to more than ${ratio} times its size`)
    },
    entry() {
      passed.entries += 1
      check(passed.entries <= entries, `has more than ${entries} entries`)
    },
    file(size: number) {
      passed.files += 1
      passed.fileBytes += size
      check(passed.files <= LIMITS.sourceFiles, `has more than ${LIMITS.sourceFiles} files`)
      check(passed.fileBytes <= LIMITS.sourceBytes, `has more than ${LIMITS.sourceBytes / MiB} MiB of files`)
    },
  }
}

const SPECIAL_FILES: Record<string, string> = {
  link: 'a hard link',
  symlink: 'a symbolic link',
  'character-device': 'a device',
  'block-device': 'a device',
  fifo: 'a pipe',
}

/** Returns the path of an entry, or undefined for a folder. Throws Problem. */
function pathOf({ header: { name, type = 'file' } }: ParsedTarEntry): string | undefined {
  const quoted = JSON.stringify(name.slice(0, 200))
  const path = name
    .replace(/^(\.\/)+/, '')
    .replace(/\/+/g, '/')
    .replace(/\/$/, '')
  if (path === '' || path === '.') return undefined
  const problem = pathProblem(path)
  if (problem) throw new Problem(`Invalid path ${quoted} in the archive: ${problem}`)
  if (type === 'directory') return undefined
  // Links among installed dependencies are ignored together with them.
  if (SPECIAL_FILES[type] && !IGNORED.test(path))
    throw new Problem(`The archive contains ${SPECIAL_FILES[type]}, ${quoted}: only files and folders are allowed`)
  return path
}
