/** A minimal protobuf encoder for OTLP. Each function encodes one field. */

type Bytes = Uint8Array<ArrayBuffer>

const VARINT = 0
const FIXED64 = 1
const LENGTH = 2

export const concat = (parts: readonly Bytes[]): Bytes => Buffer.concat(parts)

function number(value: number): Bytes {
  const bytes: number[] = []
  for (let rest = value; ; rest = Math.floor(rest / 128)) {
    if (rest < 128) return new Uint8Array([...bytes, rest])
    bytes.push((rest % 128) | 128)
  }
}

const key = (field: number, type: number): Bytes => number(field * 8 + type)

export const message = (field: number, parts: readonly Bytes[]): Bytes => {
  const body = concat(parts)
  return concat([key(field, LENGTH), number(body.byteLength), body])
}

export const text = (field: number, value: string): Bytes =>
  message(field, [new Uint8Array(new TextEncoder().encode(value))])

export const varint = (field: number, value: number): Bytes => concat([key(field, VARINT), number(value)])

export function fixed64(field: number, decimal: string): Bytes {
  const value = new Uint8Array(8)
  new DataView(value.buffer).setBigUint64(0, BigInt(decimal), true)
  return concat([key(field, FIXED64), value])
}
