import { Duplex } from 'node:stream'
import { createGunzip } from 'node:zlib'
import { createTarDecoder, type ParsedTarEntry } from 'modern-tar'
import { countBytes } from '../platform/archive/byte-counter.ts'

interface Limits {
  /** Called with the size of each chunk before it is unpacked; throws to stop. */
  packed?(size: number): void
  /** Called with the size of each unpacked chunk; throws to stop. The sizes in the headers of entries may be false. */
  unpacked(size: number): void
  /** Whether an archive with an error in its format is refused. */
  isStrict?: boolean
}

/** Calls `onEntry` for each entry of a .tar.gz. Rejects with what a limit or `onEntry` throws, or with the error of the archive. */
export async function readTarGz(
  archive: ReadableStream<Uint8Array>,
  { packed = () => {}, unpacked, isStrict = false }: Limits,
  onEntry: (entry: ParsedTarEntry) => Promise<void>,
): Promise<void> {
  let exceeded: unknown
  const counted = (count: Limits['unpacked']) =>
    countBytes((size) => {
      try {
        count(size)
      } catch (error) {
        exceeded = error
        throw error
      }
    })
  const entries = archive
    .pipeThrough(counted(packed))
    .pipeThrough(gunzip())
    .pipeThrough(counted(unpacked))
    .pipeThrough(createTarDecoder({ strict: isStrict }))
  try {
    for await (const entry of entries) await onEntry(entry)
  } catch (error) {
    // The native stream in between reports only that it failed, not why.
    throw exceeded ?? error
  }
}

/** Decompresses gzip with several members or trailing zeros, which the programs gzip and tar accept and DecompressionStream refuses. */
const gunzip = () => Duplex.toWeb(createGunzip()) as ReadableWritablePair<Uint8Array, Uint8Array>
