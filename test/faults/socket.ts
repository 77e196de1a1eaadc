import { AsyncLocalStorage } from 'node:async_hooks'
import type { Socket } from 'node:net'
import { neonConfig } from '@neondatabase/serverless'
import pg from 'pg'
import { LOCK_WAIT, pointOf } from './database.ts'
import { counted } from './quiet.ts'
import type { Instance, World } from './world.ts'

/** The instance that opens a connection now, and its callback. */
export interface Caller {
  world: World
  instance: Instance
  url: string
  /** Called after a statement was executed, whether its answer arrives or not. */
  onExecuted?(point: string): Promise<void> | void
}
export const caller = new AsyncLocalStorage<Caller>()

const READY_IDLE = Buffer.from([0x5a, 0, 0, 0, 5, 0x49])
const ROLLBACK = Buffer.from('Q\0\0\0\x0drollback\0', 'latin1')
const AUTHENTICATED = Buffer.from([0x52, 0, 0, 0, 8, 0, 0, 0, 0])

/** Connections that have already logged in: a login takes longer than everything else. */
const warm: Socket[] = []

async function open(url: string): Promise<Socket> {
  const known = warm.pop()
  if (known) return known
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  const { connection } = client as unknown as { connection: { stream: Socket; removeAllListeners(): void } }
  connection.removeAllListeners()
  for (const event of ['data', 'error', 'close', 'end']) connection.stream.removeAllListeners(event)
  connection.stream.on('error', () => {})
  return connection.stream
}

export function closeSockets(): void {
  for (const socket of warm.splice(0)) socket.destroy()
}

/**
 * Sends one round trip and reads until the server is ready again; also returns whether a transaction is open then.
 */
function roundTrip(socket: Socket, message: Buffer): Promise<{ answer: Buffer; inTransaction: boolean }> {
  return new Promise((resolve, reject) => {
    let answer = Buffer.alloc(0)
    const end = () => {
      socket.off('data', onData)
      socket.off('close', onClose)
    }
    const onClose = () => {
      end()
      reject(new Error('the server closed the connection'))
    }
    const onData = (chunk: Buffer) => {
      answer = Buffer.concat([answer, chunk])
      const status = readyStatus(answer)
      if (status === undefined) return
      end()
      resolve({ answer, inTransaction: status !== 'I' })
    }
    socket.on('data', onData)
    socket.on('close', onClose)
    socket.write(message)
  })
}

/** Returns the status in the ReadyForQuery that ends the messages; undefined while it has not arrived. */
function readyStatus(messages: Buffer): string | undefined {
  let offset = 0
  while (offset + 5 <= messages.length) {
    const end = offset + 1 + messages.readInt32BE(offset + 1)
    if (messages[offset] === 0x5a && end === messages.length) return String.fromCharCode(messages[offset + 5] ?? 0)
    offset = end
  }
  return undefined
}

const textOf = (message: Buffer) => {
  const body = message.subarray(5).toString('utf8')
  return message[0] === 0x50 ? body.slice(body.indexOf('\0') + 1) : body
}

/** Shortens the wait for locks that the code under test sets for its transaction. */
function withShortLockWait(message: Buffer): Buffer {
  const before = message.subarray(5).toString('utf8')
  const text = before.replace(/lock_timeout = \d+/, `lock_timeout = '${LOCK_WAIT}'`)
  if (text === before) return message
  const query = Buffer.from(`Q\0\0\0\0${text}`)
  query.writeInt32BE(query.length - 1, 1)
  return query
}

const held = new Set<SimulatedSocket>()
/** Longer than any transaction takes, with everything that may fail in it. */
const HELD_MS_MAX = 10 * 60_000

/** Returns connections that are open for so long that no instance can be using them. */
export const leakedSockets = (): string[] => [...held].flatMap((socket) => socket.heldTooLong() ?? [])

/**
 * A WebSocket for the Neon driver: the bytes go to a real Postgres, and each round trip is a call of the simulation.
 * So the transactions of the code under test run unchanged, and can be cut off between any two of their statements.
 */
class SimulatedSocket extends EventTarget {
  binaryType = 'arraybuffer'
  readyState = 0
  #caller: Caller
  #backend: Socket | undefined
  #inTransaction = false
  #outgoing: Buffer[] = []
  #point = 'statement'
  #started = false
  readonly #openedAt: number

  constructor() {
    super()
    const current = caller.getStore()
    if (!current) throw new Error('a transaction outside the simulation')
    this.#caller = current
    this.#openedAt = current.world.now()
    current.instance.atDeath.add(() => this.#release())
    this.#call('connect', async () => {
      const backend = await counted(open(current.url))
      // An instance that has ended never receives it.
      if (this.readyState === 3 || !current.instance.alive) warm.push(backend)
      else {
        this.#backend = backend
        held.add(this)
      }
    }).then(
      () => {
        this.readyState = 1
        this.dispatchEvent(new Event('open'))
      },
      () => this.#fail(),
    )
  }

  send(data: Uint8Array): void {
    let bytes = Buffer.from(data)
    if (!this.#started) {
      this.#started = true
      this.#deliver(Buffer.concat([AUTHENTICATED, READY_IDLE]))
      return
    }
    while (bytes.length > 0) {
      const end = 1 + bytes.readInt32BE(1)
      this.#take(bytes.subarray(0, end))
      bytes = bytes.subarray(end)
    }
  }

  #take(message: Buffer): void {
    const kind = String.fromCharCode(message[0] ?? 0)
    if (kind === 'X') {
      this.close()
      return
    }
    if (kind === 'P' || kind === 'Q') this.#point = pointOf(textOf(message))
    this.#outgoing.push(kind === 'Q' ? withShortLockWait(message) : message)
    if (kind !== 'S' && kind !== 'Q') return
    const request = Buffer.concat(this.#outgoing.splice(0))
    const point = this.#point
    this.#call(point, async () => {
      const backend = this.#backend
      if (!backend) throw new Error('the connection is closed')
      const { answer, inTransaction } = await counted(roundTrip(backend, request))
      this.#inTransaction = inTransaction
      await this.#caller.onExecuted?.(point)
      return answer
    }).then(
      (answer) => this.#deliver(answer),
      () => this.#fail(),
    )
  }

  heldTooLong(): string | undefined {
    const { world, instance } = this.#caller
    const ms = world.now() - this.#openedAt
    return ms > HELD_MS_MAX ? `${instance.name} has held a connection for ${ms} ms` : undefined
  }

  #call<T>(point: string, perform: () => Promise<T>): Promise<T> {
    const { world, instance } = this.#caller
    return world.call<T>(instance, `transaction: ${point}`, '', async () => {
      try {
        return { value: await perform() }
      } catch (error) {
        return { error }
      }
    })
  }

  #deliver(data: Buffer): void {
    queueMicrotask(() => {
      const { buffer, byteOffset, length } = data
      this.dispatchEvent(new MessageEvent('message', { data: buffer.slice(byteOffset, byteOffset + length) }))
    })
  }

  #fail(): void {
    if (this.readyState === 3) return
    this.dispatchEvent(new Event('error'))
    this.close()
  }

  close(): void {
    if (this.readyState === 3) return
    this.readyState = 3
    this.#release()
    queueMicrotask(() => this.dispatchEvent(new Event('close')))
  }

  /** Rolls back an open transaction, as the server does when a client disconnects, and keeps the connection for reuse. */
  #release(): void {
    const backend = this.#backend
    this.#backend = undefined
    if (!backend) return
    held.delete(this)
    const cleared = this.#inTransaction ? roundTrip(backend, ROLLBACK) : Promise.resolve()
    void counted(cleared.then(() => warm.push(backend)))
  }
}

/** Uses simulated sockets until the returned function is called. */
export function useSimulatedSockets(): () => void {
  const { webSocketConstructor, coalesceWrites } = neonConfig
  neonConfig.webSocketConstructor = SimulatedSocket as unknown as typeof WebSocket
  // Otherwise the driver collects its messages until a timer fires, which no simulated clock moves.
  neonConfig.coalesceWrites = false
  return () => void Object.assign(neonConfig, { webSocketConstructor, coalesceWrites })
}
