import type { Socket } from 'node:net'
import type { RowSink as Rows } from '../../src/engine/json-rows.ts'
import { READ_BYTES, UNPACED_BYTES, waitToTransfer } from './pace.ts'

/** Receives what Postgres sends for a request. */
export interface RowSink extends Rows {
  /** Called for each chunk before it is parsed. */
  receive?(bytes: number): void
}

const DATA_ROW = 'D'.charCodeAt(0)
const HEADER_BYTES = 5
/** A row up to this length is parsed when it has arrived completely. */
const ROW_BYTES = 64 * 1024
/** A value up to this length is passed on as text, which is cheaper to collect. */
const SHORT_BYTES = 4096

/** The receiver of a session's rows. */
interface Reader {
  /** Undefined between requests, and for requests that get their rows from the driver. */
  readonly sink: RowSink | undefined
  /** While true, the reader has paused the socket and resumes it itself. */
  readonly isPaused: boolean
}

/**
 * Diverts the rows of a request from the driver, which reads the socket. The driver would keep each row as a whole, in a buffer
 * of up to twice its size and once more as text, which is more memory than everything else for a large result.
 */
export function divertRows(socket: Socket, reader: Reader) {
  const parsers = socket.listeners('data') as ((bytes: Buffer) => void)[]
  const parse = (bytes: Buffer) => {
    for (const parser of parsers) parser(bytes)
  }
  let rest: Buffer | undefined
  /** Bytes of the current message that have not arrived. */
  let left = 0
  let long: LongRow | undefined
  /** The request whose rows are read, and the bytes that have arrived for it. */
  let request: RowSink | undefined
  let read = 0

  socket.removeAllListeners('data').on('data', (chunk: Buffer) => {
    if (reader.sink !== request) {
      request = reader.sink
      read = 0
    }
    read += chunk.length
    request?.receive?.(chunk.length)
    const bytes = rest ? Buffer.concat([rest, chunk]) : chunk
    /** Position up to which bytes have been passed on. */
    let from = 0
    let at = 0
    const passOn = () => {
      if (from < at) parse(bytes.subarray(from, at))
      from = at
    }
    for (;;) {
      const end = Math.min(at + left, bytes.length)
      left -= end - at
      if (long) {
        long.push(bytes.subarray(at, end))
        from = end
        if (left === 0) long = long.end()
      }
      at = end
      if (bytes.length - at < HEADER_BYTES) break
      const length = bytes.readInt32BE(at + 1) + 1
      const isRow = bytes[at] === DATA_ROW
      if (isRow) passOn()
      const sink = isRow ? reader.sink : undefined
      if (!sink) left = length
      else if (at + length <= bytes.length) {
        sink.row(readRow(bytes, at + HEADER_BYTES))
        at += length
        from = at
      } else if (length <= ROW_BYTES) break
      else {
        at += HEADER_BYTES
        from = at
        left = length - HEADER_BYTES
        long = new LongRow(sink)
      }
    }
    passOn()
    rest = at < bytes.length ? bytes.subarray(at) : undefined
    if (!reader.sink) return
    if (read > UNPACED_BYTES) pauseForPacing(socket, reader, chunk.length)
    else if (chunk.length >= READ_BYTES) yieldToOtherSockets(socket, reader)
  })
}

/** Lets other sockets be read first: otherwise up to 2 MiB of one socket are read in a row while all others wait. */
function yieldToOtherSockets(socket: Socket, reader: Reader) {
  if (socket.isPaused()) return
  socket.pause()
  setImmediate(() => {
    if (!reader.isPaused) socket.resume()
  })
}

function pauseForPacing(socket: Socket, reader: Reader, bytes: number) {
  socket.pause()
  waitToTransfer(bytes).then(() => {
    if (!reader.isPaused) socket.resume()
  })
}

function readRow(bytes: Buffer, start: number): (string | null)[] {
  const values = new Array<string | null>(bytes.readUInt16BE(start))
  let at = start + 2
  for (let i = 0; i < values.length; i++) {
    const length = bytes.readInt32BE(at)
    at += 4
    values[i] = length < 0 ? null : bytes.toString('utf8', at, at + length)
    if (length > 0) at += length
  }
  return values
}

/** Parses a row that arrives in pieces: the number of values, then each value after its length. */
class LongRow {
  private readonly sink: RowSink
  private header: Buffer = Buffer.alloc(0)
  private index = -1
  private left = 0
  private isFirst = true

  constructor(sink: RowSink) {
    this.sink = sink
    sink.beginRow()
  }

  push(bytes: Buffer) {
    for (let at = 0; at < bytes.length; ) {
      at += this.left > 0 ? this.value(bytes.subarray(at, at + this.left)) : this.length(bytes.subarray(at))
    }
  }

  private value(bytes: Buffer): number {
    const isWhole = this.isFirst && bytes.length === this.left
    this.isFirst = false
    this.left -= bytes.length
    this.sink.part(isWhole && bytes.length <= SHORT_BYTES ? bytes.toString() : bytes)
    if (this.left === 0) this.sink.endValue()
    return bytes.length
  }

  private length(bytes: Buffer): number {
    const size = this.index < 0 ? 2 : 4
    const missing = bytes.subarray(0, size - this.header.length)
    this.header = Buffer.concat([this.header, missing])
    if (this.header.length < size) return missing.length
    if (this.index >= 0) {
      const length = this.header.readInt32BE()
      this.left = Math.max(length, 0)
      this.isFirst = true
      this.sink.beginValue(this.index, length < 0)
      if (length === 0) this.sink.endValue()
    }
    this.index += 1
    this.header = Buffer.alloc(0)
    return missing.length
  }

  end(): undefined {
    this.sink.endRow()
  }
}
