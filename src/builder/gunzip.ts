import { Duplex } from 'node:stream'
import { createGunzip } from 'node:zlib'

/** Takes several members and zeros after the last, as gzip and tar do; DecompressionStream refuses both. */
export const gunzip = () => Duplex.toWeb(createGunzip()) as ReadableWritablePair<Uint8Array, Uint8Array>
