const PIECE_BYTES = 4_096

/** Reports the size of each chunk. Splits chunks into small pieces, because one piece may unpack to a thousand times its size in memory. */
export const countBytes = (count: (size: number) => void) =>
  new TransformStream<Uint8Array, Uint8Array>({
    transform(chunk, controller) {
      count(chunk.byteLength)
      for (let at = 0; at < chunk.byteLength; at += PIECE_BYTES)
        controller.enqueue(chunk.subarray(at, at + PIECE_BYTES))
    },
  })
