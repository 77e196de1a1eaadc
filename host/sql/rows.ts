import type { Socket } from 'node:net'
import type { RowSink as Rows } from '../../src/engine/json-rows.ts'

/** Takes what Postgres sends to a request. */
export interface RowSink extends Rows {
  /** Before anything of it is parsed. */
  receive?(bytes: number): void
}

const DATA_ROW = 'D'.charCodeAt(0)
const HEADER_BYTES = 5
/** A row that is not longer is parsed when it is there as a whole. */
const ROW_BYTES = 64 * 1024
/** A value that is not longer is handed on as text, which is cheaper to gather. */
const SHORT_BYTES = 4096

/** As much as is read from a socket at once. */
const READ_BYTES = 64 * 1024

/** Who takes the rows of a session. */
interface Reader {
  /** Absent between requests, and for those that take their rows from the driver. */
  readonly sink: RowSink | undefined
  /** Nothing is read while it is true; the reader resumes the socket itself. */
  readonly isHeld: boolean
}

/**
 * Takes the rows of a request out of what the driver reads from the socket. The driver would hold a row as a whole, in a
 * buffer of up to twice its size and once more as text, which is more than all else that a large result takes.
 */
export function divertRows(socket: Socket, reader: Reader) {
  const parsers = socket.listeners('data') as ((bytes: Buffer) => void)[]
  const parse = (bytes: Buffer) => {
    for (const parser of parsers) parser(bytes)
  }
  let rest: Buffer | undefined
  /** Of the message that has begun. */
  let left = 0
  let long: LongRow | undefined

  socket.removeAllListeners('data').on('data', (chunk: Buffer) => {
    reader.sink?.receive?.(chunk.length)
    const bytes = rest ? Buffer.concat([rest, chunk]) : chunk
    /** All bytes before this position have been handed on. */
    let from = 0
    let at = 0
    const handOn = () => {
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
      if (isRow) handOn()
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
    handOn()
    rest = at < bytes.length ? bytes.subarray(at) : undefined
    if (chunk.length >= READ_BYTES && reader.sink) giveWay(socket, reader)
  })
}

/** Lets all other sockets go first: without it, up to 2 MiB of one come in a row while everybody else waits. */
function giveWay(socket: Socket, reader: Reader) {
  if (socket.isPaused()) return
  socket.pause()
  setImmediate(() => {
    if (!reader.isHeld) socket.resume()
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

/** The number of values, and then each with its length before it. */
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
