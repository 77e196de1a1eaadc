import type { Socket } from 'node:net'
import { withTimeout } from '../../src/platform/timeout.ts'
import { type Instance, InstanceUnavailable } from '../instances/types.ts'
import { int32, readMessage, startupMessage } from './messages.ts'
import { ConnectionLost, destroyOnError } from './streams.ts'

const CANCEL_REQUEST = 80_877_102
const MESSAGE_BYTES_MAX = 1024 * 1024
/** Limit for the time from the startup message to the first ReadyForQuery. */
const LOGIN_MS_MAX = 60_000

/** A session on an instance's server, logged in and idle. */
export interface ServerSession {
  socket: Socket
  /** ParameterStatus messages and notices of the session, as received. */
  greeting: Buffer
  /** Process number and secret for a CancelRequest. */
  key: Buffer
}

/** The server refused the session; its ErrorResponse is passed on to the client. */
export class ServerRefusal extends Error {
  override name = 'ServerRefusal'
  readonly response: Buffer
  constructor(response: Buffer) {
    super('the server refused the session')
    this.response = response
  }

  get isOutOfSessions(): boolean {
    return this.response.includes('\0C53300\0')
  }
}

export interface Identity {
  role: string
  database: string
}

/** Wakes the instance and logs in; the server trusts this process's operating-system user. */
export async function openServerSession(
  instance: Instance,
  { role, database }: Identity,
  parameters: ReadonlyMap<string, string>,
): Promise<ServerSession> {
  const socket = await instance.connect()
  destroyOnError(socket)
  socket.write(startupMessage([['user', role], ['database', database], ...parameters]))
  const closed = () => new InstanceUnavailable('The server closed the connection during the login')
  const ready = withTimeout(LOGIN_MS_MAX, readUntilReady(socket), closed).catch((error) => {
    socket.destroy()
    throw error instanceof ConnectionLost ? closed() : error
  })
  return { socket, ...(await ready) }
}

async function readUntilReady(socket: Socket): Promise<Omit<ServerSession, 'socket'>> {
  const greeting: Buffer[] = []
  let key: Buffer = Buffer.alloc(8)
  for (;;) {
    const { type, body, raw } = await readMessage(socket, MESSAGE_BYTES_MAX)
    if (type === 'Z') return { greeting: Buffer.concat(greeting), key }
    if (type === 'E') throw new ServerRefusal(raw)
    if (type === 'K') key = body
    else if (type === 'S' || type === 'N') greeting.push(raw)
    else if (type === 'R' && body.readInt32BE(0) !== 0) throw new Error('the server asks for a password')
  }
}

/** Asks the server to cancel the statement that the session runs. */
export async function cancel(instance: Instance, key: Buffer): Promise<void> {
  if (instance.state() !== 'running') return
  const socket = await instance.connect()
  destroyOnError(socket)
  socket.end(Buffer.concat([int32(16, CANCEL_REQUEST), key]))
  socket.resume()
  await new Promise((resolve) => socket.once('close', resolve))
}
