import { brotliCompressSync, constants, gzipSync } from 'node:zlib'
import type { Script } from './scripted.ts'

const MIB = 1024 * 1024

export const answer =
  (status: number, headers: Record<string, string> = {}, body = ''): Script =>
  ({ response }) =>
    void response.writeHead(status, headers).end(body)

/** Sends exactly these bytes after the connection's request, and then ends it. */
export const bytes =
  (...parts: (string | Buffer)[]): Script =>
  ({ socket }) =>
    void socket.end(Buffer.concat(parts.map((part) => Buffer.from(part as string))))

/** Sends a status line that Node's own server would not write. */
export const bareStatus = (status: number): Script => bytes(`HTTP/1.1 ${status} Whatever\r\ncontent-length: 0\r\n\r\n`)

export const withHead = (head: string, body: string | Buffer = ''): Script => {
  const sizeBytes = Buffer.byteLength(body)
  return bytes(`HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: ${sizeBytes}\r\n${head}\r\n`, body)
}

export const silence: Script = () => {}

export const headersOnly: Script = ({ socket }) => void socket.write('HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n')

export const delayed =
  (ms: number, script: Script): Script =>
  (exchange) =>
    void setTimeout(() => script(exchange), ms)

/** Sends a byte at intervals, without an end. */
export const drip =
  (everyMs: number): Script =>
  ({ socket }) => {
    socket.write('HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nx')
    const timer = setInterval(() => socket.write('x'), everyMs)
    socket.once('close', () => clearInterval(timer))
  }

/** Sends bytes for as long as the client reads them; `written` returns their number. */
export function endless(head: string, chunk: Buffer = Buffer.alloc(MIB, 'x')) {
  let sizeBytes = 0
  const script: Script = ({ socket }) => {
    const more = () => {
      while (!socket.destroyed) {
        sizeBytes += chunk.length
        if (!socket.write(chunk)) return void socket.once('drain', more)
      }
    }
    socket.write(`HTTP/1.1 200 OK\r\n${head}\r\n\r\n`)
    more()
  }
  return { script, written: () => sizeBytes }
}

const BOMB = Buffer.alloc(128 * MIB, 'x')

const compressed = (coding: string, bomb: Buffer): Script => withHead(`content-encoding: ${coding}\r\n`, bomb)

export const gzipBomb = () => compressed('gzip', gzipSync(BOMB))

export const brotliBomb = () =>
  compressed('br', brotliCompressSync(BOMB, { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } }))

export const reset: Script = ({ socket }) => void socket.resetAndDestroy()

export const resetMidBody: Script = ({ socket }) => {
  socket.write('HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nthe beginning', () => {
    setTimeout(() => socket.resetAndDestroy(), 100)
  })
}
