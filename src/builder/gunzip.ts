import { Duplex } from 'node:stream'
import { createGunzip } from 'node:zlib'

/** Decompresses gzip with several members or trailing zeros, which the programs gzip and tar accept and DecompressionStream refuses. */
export const gunzip = () => Duplex.toWeb(createGunzip()) as ReadableWritablePair<Uint8Array, Uint8Array>
