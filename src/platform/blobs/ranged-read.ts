import type { Found, Range } from './store.ts'

export const PIECE_BYTES = 64 * 1024 ** 2

/**
 * Some buckets look at all that they are asked for before they answer: so what is long comes in pieces, each asked for once the
 * reader has taken the one before it. Where a later one fails the body breaks off.
 */
export async function readPieces(
  { offset, length }: Range,
  get: (piece: Range) => Promise<Found | undefined>,
  pieceBytes = PIECE_BYTES,
): Promise<Found | undefined> {
  const pieceAt = (from: number) => get({ offset: offset + from, length: Math.min(pieceBytes, length - from) })
  const first = await pieceAt(0)
  if (!first) return undefined
  // It fails where more or fewer come.
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
