import type { Duplex } from 'node:stream'
import { readBytes } from './streams.ts'

/** An error that ends the connection. Its SQLSTATE and text are sent to the client in an ErrorResponse. */
export class Fatal extends Error {
  override name = 'Fatal'
  /** SQLSTATE. */
  readonly code: string
  constructor(code: string, message: string) {
    super(message)
    this.code = code
  }
}

export const PROTOCOL_3 = 196_608

export const int32 = (...values: readonly number[]): Buffer => {
  const bytes = Buffer.alloc(values.length * 4)
  values.forEach((value, n) => void bytes.writeInt32BE(value | 0, n * 4))
  return bytes
}

export const text = (...values: readonly string[]): Buffer => Buffer.from(values.map((value) => `${value}\0`).join(''))

export function message(type: string, ...parts: readonly Buffer[]): Buffer {
  const length = parts.reduce((sum, part) => sum + part.length, 4)
  return Buffer.concat([Buffer.from(type, 'latin1'), int32(length), ...parts])
}

export function errorResponse(code: string, text: string): Buffer {
  const fields = [`SFATAL`, `VFATAL`, `C${code}`, `M${text.replaceAll('\0', '')}`]
  return message('E', Buffer.from(`${fields.join('\0')}\0\0`))
}

export const authentication = (kind: number, ...parts: readonly Buffer[]): Buffer => message('R', int32(kind), ...parts)
export const AUTHENTICATION_OK = authentication(0)
export const READY_FOR_QUERY = message('Z', Buffer.from('I'))

/** Encodes a startup message: role, database and settings. */
export function startupMessage(parameters: Iterable<readonly [string, string]>): Buffer {
  const body = Buffer.concat([...[...parameters].map((pair) => text(...pair)), Buffer.from([0])])
  return Buffer.concat([int32(body.length + 8, PROTOCOL_3), body])
}

export interface Message {
  type: string
  body: Buffer
  /** The whole message as received: type, length and body. */
  raw: Buffer
}

export async function readMessage(stream: Duplex, bodyMax: number): Promise<Message> {
  const head = await readBytes(stream, 5)
  const length = head.readInt32BE(1) - 4
  if (length < 0 || length > bodyMax) throw new Fatal('08P01', 'invalid message length')
  const body = await readBytes(stream, length)
  return { type: String.fromCharCode(head[0] ?? 0), body, raw: Buffer.concat([head, body]) }
}
