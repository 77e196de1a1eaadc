/** The byte position of an LSN such as `0/16B3748`. */
export function toBytes(lsn: string): bigint {
  const [high = '', low = ''] = lsn.split('/')
  return (BigInt(`0x${high}`) << 32n) + BigInt(`0x${low}`)
}

/** The number of the segment that contains the byte at `lsn`. */
export const segmentAt = (lsn: string, segmentBytes: number): number => Number(toBytes(lsn) / BigInt(segmentBytes))

/** The number of the segment that contains the byte before `lsn`. */
export const segmentBefore = (lsn: string, segmentBytes: number): number =>
  Number((toBytes(lsn) - 1n) / BigInt(segmentBytes))

export const timelineOf = (segment: string): number => Number.parseInt(segment.slice(0, 8), 16)

/** The number of a segment; every timeline counts from 0. */
export function numberOf(segment: string, segmentBytes: number): number {
  const [high, low] = [Number.parseInt(segment.slice(8, 16), 16), Number.parseInt(segment.slice(16), 16)]
  return high * (2 ** 32 / segmentBytes) + low
}

export function nameOf(timeline: number, number: number, segmentBytes: number): string {
  const perHigh = 2 ** 32 / segmentBytes
  const parts = [timeline, Math.floor(number / perHigh), number % perHigh]
  return parts.map(hexOf).join('')
}

/** Eight hexadecimal digits, as in the names of WAL files. */
export const hexOf = (part: number): string => part.toString(16).toUpperCase().padStart(8, '0')

export const historyName = (timeline: number): string => `${hexOf(timeline)}.history`

/** The ancestors in the text of a timeline's history file, the oldest first, each with the position where it ended. */
export function ancestorsIn(history: string): Map<number, bigint> {
  const lines = history.matchAll(/^\s*(\d+)\s+([0-9A-F]+\/[0-9A-F]+)/gm)
  return new Map(Array.from(lines, ([, timeline, lsn = '0/0']) => [Number(timeline), toBytes(lsn)]))
}
