import { createTarDecoder, type ParsedTarEntry } from 'modern-tar'

const ARCHIVE_LIMITS = {
  compressedBytes: 32 * 1024 ** 2,
  unpackedBytes: 128 * 1024 ** 2,
  /** Of the files that are kept, which all lie in memory. */
  keptBytes: 32 * 1024 ** 2,
  entries: 20_000,
  pathBytes: 512,
  /** Unpacked against compressed, once it is worth a look. */
  ratio: 200,
}

const RATIO_FROM_BYTES = 8 * 1024 ** 2

/** The archive cannot be taken; the message tells the developer why. */
export class ArchiveRefused extends Error {
  override name = 'ArchiveRefused'
}

export type Files = Map<string, Uint8Array<ArrayBuffer>>

/** Installed and repository folders: dependencies are resolved anew, by the ranges of the package.json. */
const LEFT_OUT = /(^|\/)(node_modules|\.git)(\/|$)/

/** The files of a .tar.gz, by their paths, in one pass and within bounds. Rejects with ArchiveRefused. */
export async function unpack(body: ReadableStream<Uint8Array>): Promise<Files> {
  const files: Files = new Map()
  const read = { entries: 0, keptBytes: 0 }
  try {
    for await (const entry of entriesOf(body)) {
      if (++read.entries > ARCHIVE_LIMITS.entries) refuse(`has more than ${ARCHIVE_LIMITS.entries} entries`)
      const path = pathOf(entry)
      if (path === undefined || LEFT_OUT.test(path)) {
        await entry.body.cancel()
        continue
      }
      read.keptBytes += entry.header.size
      if (read.keptBytes > ARCHIVE_LIMITS.keptBytes) refuse(`has files of more than ${ARCHIVE_LIMITS.keptBytes} bytes`)
      files.set(path, await bytesOf(entry))
    }
  } catch (error) {
    if (error instanceof ArchiveRefused) throw error
    throw new ArchiveRefused(`is no gzip-compressed tar archive, or a damaged one: ${messageOf(error)}`)
  }
  return files
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

function refuse(what: string): never {
  throw new ArchiveRefused(what)
}

function entriesOf(body: ReadableStream<Uint8Array>): ReadableStream<ParsedTarEntry> {
  const passed = { compressed: 0, unpacked: 0 }
  const compressed = bounded((size) => {
    passed.compressed += size
    if (passed.compressed > ARCHIVE_LIMITS.compressedBytes) {
      refuse(`is larger than ${ARCHIVE_LIMITS.compressedBytes} bytes`)
    }
  })
  const unpacked = bounded((size) => {
    passed.unpacked += size
    if (passed.unpacked > ARCHIVE_LIMITS.unpackedBytes) {
      refuse(`unpacks to more than ${ARCHIVE_LIMITS.unpackedBytes} bytes`)
    }
    const suspicious = passed.unpacked > RATIO_FROM_BYTES && passed.unpacked > ARCHIVE_LIMITS.ratio * passed.compressed
    if (suspicious) refuse(`unpacks to more than ${ARCHIVE_LIMITS.ratio} times its size`)
  })
  return body
    .pipeThrough(compressed)
    .pipeThrough(inPieces())
    .pipeThrough(new DecompressionStream('gzip') as ReadableWritablePair<Uint8Array, Uint8Array>)
    .pipeThrough(unpacked)
    .pipeThrough(createTarDecoder({ strict: true }))
}

const bounded = (count: (size: number) => void) =>
  new TransformStream<Uint8Array, Uint8Array>({
    transform(chunk, controller) {
      count(chunk.byteLength)
      controller.enqueue(chunk)
    },
  })

const PIECE_BYTES = 4_096

/** What is unpacked of one piece lies in memory at once, a thousand times as much at worst. */
const inPieces = () =>
  new TransformStream<Uint8Array, Uint8Array>({
    transform(chunk, controller) {
      for (let at = 0; at < chunk.byteLength; at += PIECE_BYTES)
        controller.enqueue(chunk.subarray(at, at + PIECE_BYTES))
    },
  })

const NO_FILES: Record<string, string> = {
  link: 'a hard link',
  symlink: 'a symbolic link',
  'character-device': 'a device',
  'block-device': 'a device',
  fifo: 'a pipe',
}

/** Undefined for a folder. */
function pathOf({ header: { name, type = 'file' } }: ParsedTarEntry): string | undefined {
  if (new TextEncoder().encode(name).length > ARCHIVE_LIMITS.pathBytes) {
    refuse(`has a path of more than ${ARCHIVE_LIMITS.pathBytes} bytes: ${name.slice(0, 80)}…`)
  }
  if (name.startsWith('/') || /^[a-z]:/i.test(name)) refuse(`has an absolute path: ${name}`)
  if (name.includes('\\') || name.includes('\0')) refuse(`has a path with a backslash or a NUL: ${name}`)
  const parts = name.split('/').filter((part) => part !== '' && part !== '.')
  if (parts.includes('..')) refuse(`has a path that leads out of it: ${name}`)
  const path = parts.join('/')
  if (type === 'directory' || path === '') return undefined
  // Whoever packs installed dependencies packs their links with them, and none of these is taken.
  if (NO_FILES[type] && !LEFT_OUT.test(path)) refuse(`has ${NO_FILES[type]}: ${name}`)
  return path
}

async function bytesOf({ header: { size }, body }: ParsedTarEntry): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = new Uint8Array(size)
  let at = 0
  for await (const chunk of body) {
    bytes.set(chunk, at)
    at += chunk.byteLength
  }
  return bytes
}
