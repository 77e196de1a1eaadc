import type { Found, Range } from './store.ts'

export const PIECE_BYTES = 64 * 1024 ** 2

/**
 * Reads a long range in pieces, because some buckets read the whole range before they respond. Each piece is requested after the
 * one before has been consumed. If a later piece fails, the body is aborted.
 */
export async function readPieces(
  { offset, length }: Range,
  get: (piece: Range) => Promise<Found | undefined>,
  pieceBytes = PIECE_BYTES,
): Promise<Found | undefined> {
  const pieceAt = (from: number) => get({ offset: offset + from, length: Math.min(pieceBytes, length - from) })
  const first = await pieceAt(0)
  if (!first) return undefined
  // The stream fails if the pieces have more or fewer bytes.
  const { readable, writable } = new FixedLengthStream(length)

  async function pass(): Promise<void> {
    for (let from = 0; from < length; from += pieceBytes) {
      const piece = from === 0 ? first : await pieceAt(from)
      if (!piece?.body) throw new Error('the bytes were removed while they were read')
      await piece.body.pipeTo(writable, { preventClose: true })
    }
    await writable.close()
  }
  pass().catch((error) => writable.abort(error).catch(() => {}))
  return { ...first, body: readable, size: length }
}
