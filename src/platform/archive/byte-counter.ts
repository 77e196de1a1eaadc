const PIECE_BYTES = 4_096

/**
 * Reports the size of each chunk. Splits chunks of packed data into small pieces, because one piece may unpack to a thousand times
 * its size in memory.
 */
export const countBytes = (count: (size: number) => void, pieceBytes = PIECE_BYTES) =>
  new TransformStream<Uint8Array, Uint8Array>({
    transform(chunk, controller) {
      count(chunk.byteLength)
      for (let at = 0; at < chunk.byteLength; at += pieceBytes) controller.enqueue(chunk.subarray(at, at + pieceBytes))
    },
  })
