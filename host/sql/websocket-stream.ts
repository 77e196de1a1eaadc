import { createHash } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { Duplex, finished } from 'node:stream'
import { destroyOnError } from '../gateway/streams.ts'

const PROTOCOL_ID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
const BINARY = 2
const CLOSE = 8
const PING = 9
const OPCODES = new Set([0, 1, BINARY, CLOSE, PING, 10])
const CONTROL_BYTES_MAX = 125

interface Frame {
  opcode: number
  mask: Buffer
  /** Bytes of the payload that were read, and that are still to be read. */
  read: number
  left: number
}

/** Answers the handshake of a WebSocket; returns undefined if the request is invalid. */
export function acceptWebSocket(req: IncomingMessage, socket: Duplex, head: Buffer): Duplex | undefined {
  const { upgrade, 'sec-websocket-key': key = '', 'sec-websocket-version': version } = req.headers
  const isValid = upgrade?.toLowerCase() === 'websocket' && version === '13' && /^[+/0-9A-Za-z]{22}==$/.test(key)
  if (req.method !== 'GET' || !isValid) return undefined
  const accept = createHash('sha1').update(`${key}${PROTOCOL_ID}`).digest('base64')
  const headers = ['upgrade: websocket', 'connection: Upgrade', `sec-websocket-accept: ${accept}`]
  socket.write(`HTTP/1.1 101 Switching Protocols\r\n${headers.join('\r\n')}\r\n\r\n`)
  if (head.length > 0) socket.unshift(head)
  return new WebSocketStream(socket)
}

/**
 * The bytes of a WebSocket's messages. They are passed on as they arrive: a message that is kept until it is complete takes as
 * much memory as its client likes, for as long as its client likes.
 */
class WebSocketStream extends Duplex {
  readonly #socket: Duplex
  /** The beginning of a header, or of a control frame. */
  #rest: Buffer = Buffer.alloc(0)
  #frame: Frame | undefined
  #hasEnded = false

  constructor(socket: Duplex) {
    super()
    this.#socket = socket
    // The user of this stream reacts to the end of the connection, whatever its reason.
    this.on('error', () => {})
    destroyOnError(socket)
    socket.on('data', this.#receive)
    for (const event of ['end', 'close']) socket.once(event, () => this.#end())
  }

  readonly #receive = (chunk: Buffer) => {
    let data = this.#rest.length > 0 ? Buffer.concat([this.#rest, chunk]) : chunk
    const received = { bytes: data.length, payloads: [] as Buffer[] }
    for (;;) {
      if (!this.#frame) {
        if (!isValidStart(data)) return void this.destroy()
        const header = readHeader(data)
        if (!header) break
        this.#frame = header.frame
        data = data.subarray(header.bytes)
      }
      const frame = this.#frame
      const needed = frame.opcode >= CLOSE ? frame.left : Math.min(frame.left, 1)
      if (data.length < needed) break
      const payload = data.subarray(0, frame.left)
      data = data.subarray(payload.length)
      unmask(payload, frame)
      if (frame.left === 0) this.#frame = undefined
      if (frame.opcode < CLOSE) received.payloads.push(payload)
      else this.#takeControl(frame.opcode, payload, () => this.#pass(received))
    }
    this.#pass(received)
    // A copy, which keeps only these bytes of the chunk in memory.
    this.#rest = Buffer.from(data)
  }

  /**
   * Passes on the payloads of one chunk. If they are a small part of it they are copied: the stream counts their bytes alone, but a
   * slice keeps the whole chunk in memory.
   */
  #pass({ bytes, payloads }: { bytes: number; payloads: Buffer[] }) {
    const taken = payloads.splice(0)
    const length = taken.reduce((sum, payload) => sum + payload.length, 0)
    if (length === 0 || this.#hasEnded) return
    const [first] = taken
    const whole = first?.length === length && 2 * length >= bytes ? first : copyOf(taken, length)
    if (!this.push(whole)) this.#socket.pause()
  }

  #takeControl(opcode: number, payload: Buffer, passData: () => void) {
    const socket = this.#socket
    if (opcode === CLOSE) {
      passData()
      if (!socket.writableEnded) socket.end(Buffer.concat([headerOf(CLOSE, payload.length), payload]))
      this.#end()
    } else if (opcode === PING && !socket.writableEnded && !socket.writableNeedDrain) {
      // A client that does not read gets no answers, which would have to be kept for it.
      socket.write(Buffer.concat([headerOf(PING + 1, payload.length), payload]))
    }
  }

  /** Nothing more arrives. */
  #end() {
    this.#socket.off('data', this.#receive).resume()
    if (!this.#hasEnded) this.push(null)
    this.#hasEnded = true
  }

  override _read() {
    this.#socket.resume()
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void) {
    const socket = this.#socket
    // A client that has closed its WebSocket reads nothing more.
    if (socket.writableEnded) return done()
    socket.cork()
    socket.write(headerOf(BINARY, chunk.length))
    socket.write(chunk, done)
    socket.uncork()
  }

  override _final(done: () => void) {
    if (!this.#socket.writableEnded) this.#socket.end(headerOf(CLOSE, 0))
    finished(this.#socket, { readable: false }, () => done())
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void) {
    this.#socket.destroy()
    done(error)
  }
}

/** A copy outside of the pool of small buffers, each of which would keep 8 KiB in memory. */
function copyOf(parts: readonly Buffer[], length: number): Buffer {
  const copy = Buffer.alloc(length)
  let at = 0
  for (const part of parts) at += part.copy(copy, at)
  return copy
}

/** Whether the first bytes of a frame, as many as there are, are those of a client that negotiated no extension. */
function isValidStart(data: Buffer): boolean {
  const [first = BINARY, second = 0x80] = data
  const opcode = first & 0x0f
  const isControl = opcode >= CLOSE
  if ((first & 0x70) !== 0 || !OPCODES.has(opcode) || (second & 0x80) === 0) return false
  return !isControl || ((first & 0x80) !== 0 && (second & 0x7f) <= CONTROL_BYTES_MAX)
}

/** Reads the header of a frame; returns undefined if it is incomplete. */
function readHeader(data: Buffer): { frame: Frame; bytes: number } | undefined {
  if (data.length < 2) return undefined
  const short = data.readUInt8(1) & 0x7f
  const maskAt = short === 127 ? 10 : short === 126 ? 4 : 2
  const bytes = maskAt + 4
  if (data.length < bytes) return undefined
  const left = short === 127 ? Number(data.readBigUInt64BE(2)) : short === 126 ? data.readUInt16BE(2) : short
  const mask = Buffer.from(data.subarray(maskAt, bytes))
  return { frame: { opcode: data.readUInt8(0) & 0x0f, mask, read: 0, left }, bytes }
}

/** Unmasks bytes of the frame's payload in place, and counts them. */
function unmask(payload: Buffer, frame: Frame) {
  const { mask, read } = frame
  for (let n = 0; n < payload.length; n++) payload[n] = (payload[n] ?? 0) ^ (mask[(read + n) & 3] ?? 0)
  frame.read += payload.length
  frame.left -= payload.length
}

/** The header of a frame that is a whole message. */
function headerOf(opcode: number, length: number): Buffer {
  const header = Buffer.alloc(length < 126 ? 2 : length < 65_536 ? 4 : 10)
  header.writeUInt8(0x80 + opcode)
  if (length < 126) header.writeUInt8(length, 1)
  else if (length < 65_536) header.writeUInt16BE(length, header.writeUInt8(126, 1))
  else header.writeBigUInt64BE(BigInt(length), header.writeUInt8(127, 1))
  return header
}
