const PIECE_BYTES = 4_096

/** In pieces: what is unpacked of one lies in memory at once, a thousand times as much at worst. */
export const counted = (count: (size: number) => void) =>
  new TransformStream<Uint8Array, Uint8Array>({
    transform(chunk, controller) {
      count(chunk.byteLength)
      for (let at = 0; at < chunk.byteLength; at += PIECE_BYTES)
        controller.enqueue(chunk.subarray(at, at + PIECE_BYTES))
    },
  })
