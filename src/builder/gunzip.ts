import { Duplex } from 'node:stream'
import { createGunzip } from 'node:zlib'

/** Accepts several members and trailing zeros, as gzip and tar do; DecompressionStream accepts neither. */
export const gunzip = () => Duplex.toWeb(createGunzip()) as ReadableWritablePair<Uint8Array, Uint8Array>
