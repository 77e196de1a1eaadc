import { readSync, writeSync } from 'node:fs'
import { pgDump } from '@electric-sql/pglite-tools/pg_dump'

/**
 * A process of its own: pg_dump, compiled to WebAssembly, waits for each answer of the server, which is at the other end of
 * this file descriptor. It prints its output.
 */
const SERVER = 3
const CHUNK_BYTES = 1 << 16
/** The codes of requests for TLS and GSSAPI, which the server answers with one byte. */
const ENCRYPTION_REQUESTS = [80877103, 80877104]

let isStarted = false
let outgoing = Buffer.alloc(0)

/** What the server will answer to all that has been sent; undefined while a message is incomplete, and for the last one. */
function expectedAnswer(sent: Buffer): 'byte' | 'ready' | undefined {
  outgoing = Buffer.concat([outgoing, sent])
  let answer: 'byte' | 'ready' | undefined
  for (;;) {
    const start = isStarted ? 1 : 0
    if (outgoing.length < start + 4) break
    const end = start + outgoing.readInt32BE(start)
    if (outgoing.length < end) break
    const isEncryption = !isStarted && ENCRYPTION_REQUESTS.includes(outgoing.readInt32BE(4))
    const isEnd = isStarted && outgoing[0] === 'X'.charCodeAt(0)
    answer = isEnd ? undefined : isEncryption ? 'byte' : 'ready'
    if (!isEncryption) isStarted = true
    outgoing = outgoing.subarray(end)
  }
  return outgoing.length === 0 ? answer : undefined
}

/** All that the server says until it waits for the next statement, or what it has said when it hangs up. */
function receive(answer: 'byte' | 'ready'): Buffer {
  const chunk = Buffer.alloc(CHUNK_BYTES)
  const received: Buffer[] = []
  let message = Buffer.alloc(0)
  for (;;) {
    const length = readSync(SERVER, chunk)
    const bytes = Buffer.from(chunk.subarray(0, length))
    received.push(bytes)
    if (length === 0 || answer === 'byte') return Buffer.concat(received)
    message = Buffer.concat([message, bytes])
    let isReady = false
    while (message.length >= 5 && message.length > message.readInt32BE(1)) {
      isReady = message[0] === 'Z'.charCodeAt(0)
      message = message.subarray(1 + message.readInt32BE(1))
    }
    if (isReady && message.length === 0) return Buffer.concat(received)
  }
}

/** What the library asks of a database. */
const database = {
  query: async () => ({ rows: [{ search_path: '' }] }),
  exec: async () => [],
  execProtocolRawStream(message: Uint8Array, { onRawData }: { onRawData(answer: Uint8Array): void }) {
    const bytes = Buffer.from(message)
    for (let at = 0; at < bytes.length; ) at += writeSync(SERVER, bytes, at)
    const answer = expectedAnswer(bytes)
    if (answer) onRawData(receive(answer))
  },
}

const file = await pgDump({ pg: database as never, args: process.argv.slice(2) })
process.stdout.write(await file.text())
