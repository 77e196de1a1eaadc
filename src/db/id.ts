/** A version 7 UUID, as the database's own `uuidv7()` makes them, for rows whose id must be known before they are written. */
export function newTimedId(at: Date): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16))
  new DataView(bytes.buffer).setBigUint64(0, (BigInt(at.getTime()) << 16n) | BigInt(0x7000 | randomBits(12)))
  bytes[8] = 0x80 | ((bytes[8] ?? 0) & 0x3f)
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-')
}

const randomBits = (count: number) => (crypto.getRandomValues(new Uint16Array(1))[0] ?? 0) & (2 ** count - 1)
