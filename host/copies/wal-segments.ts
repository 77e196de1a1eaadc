/** The byte position of an LSN such as `0/16B3748`. */
export function toBytes(lsn: string): bigint {
  const [high = '', low = ''] = lsn.split('/')
  return (BigInt(`0x${high}`) << 32n) + BigInt(`0x${low}`)
}

/** The number of the segment that contains the byte at `lsn`. */
export const segmentAt = (lsn: string, segmentBytes: number): number => Number(toBytes(lsn) / BigInt(segmentBytes))

export const timelineOf = (segment: string): number => Number.parseInt(segment.slice(0, 8), 16)

/** The number of a segment; every timeline counts from 0. */
export function numberOf(segment: string, segmentBytes: number): number {
  const [high, low] = [Number.parseInt(segment.slice(8, 16), 16), Number.parseInt(segment.slice(16), 16)]
  return high * (2 ** 32 / segmentBytes) + low
}

export function nameOf(timeline: number, number: number, segmentBytes: number): string {
  const perHigh = 2 ** 32 / segmentBytes
  const parts = [timeline, Math.floor(number / perHigh), number % perHigh]
  return parts.map((part) => part.toString(16).toUpperCase().padStart(8, '0')).join('')
}
