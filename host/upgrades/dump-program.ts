import { readSync, writeSync } from 'node:fs'
import { pgDump } from '@electric-sql/pglite-tools/pg_dump'

/**
 * File descriptor of the connection to the server. This program is a process of its own, because pg_dump, compiled to
 * WebAssembly, blocks until each answer of the server. It prints the dump.
 */
const SERVER = 3
const CHUNK_BYTES = 1 << 16
/** Codes of the requests for TLS and GSSAPI, which the server answers with one byte. */
const ENCRYPTION_REQUESTS = [80877103, 80877104]

let isStarted = false
let outgoing = Buffer.alloc(0)

/** The kind of answer that the server will send; undefined while a message is incomplete, and after the last one. */
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

/** Reads everything until the server is ready for the next statement, or closes the connection. */
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

/** The interface that the library needs of a database. */
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

/**
 * The library removes every line that begins like the command `\restrict` of psql, also inside a literal, which then loses
 * its end. The dump must stay as pg_dump wrote it; its reader checks that the commands are there.
 */
const replace = String.prototype.replace as (this: string, pattern: unknown, replacement: unknown) => string
String.prototype.replace = function (this: string, pattern: unknown, replacement: unknown) {
  const isRemoval = pattern instanceof RegExp && pattern.source.includes('restrict') && replacement === ''
  return isRemoval ? this.toString() : replace.call(this, pattern, replacement)
}

const file = await pgDump({ pg: database as never, args: process.argv.slice(2) })
process.stdout.write(await file.text())
