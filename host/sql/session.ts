import type { Socket } from 'node:net'
import pg from 'pg'
import { errorCode } from '../../dev/start-error.ts'
import { withTimeout } from '../../src/platform/timeout.ts'
import { int32 } from '../gateway/messages.ts'
import { cancel } from '../gateway/server-session.ts'
import { asUnconnected, limitReplies } from '../instances/admin.ts'
import { type Instance, InstanceUnavailable } from '../instances/types.ts'
import { Plans } from './plans.ts'
import { Refusal } from './refusal.ts'
import { divertRows, type RowSink } from './rows.ts'
import type { Target } from './target.ts'

// Members of the driver's clients that its types leave out.
interface DriverClient extends pg.Client {
  processID: number | null
  secretKey: number | null
  getTransactionStatus(): string | null
}

/** A session on an instance, logged in by peer authentication as the target's role. */
export class Session {
  readonly client: pg.Client
  readonly key: string
  /** Undefined if the session serves one request. */
  readonly plans: Plans | undefined
  /** Statements that reset the session's state after a request. */
  readonly reset: readonly string[]
  readonly socket: Socket
  readonly #instance: Instance
  /** The reason why the session can no longer be used. */
  failure: Error | undefined
  /** Whether the session has served a request before. */
  isReused = false
  idleSince = 0
  /** Receives the rows of the current request. */
  sink: RowSink | undefined
  /** The request has paused the socket while it waits for memory, and resumes it afterwards. */
  isPaused = false

  constructor(instance: Instance, { key, pooling }: Target, { client, socket }: Pick<Session, 'client' | 'socket'>) {
    this.#instance = instance
    this.client = client
    this.socket = socket
    this.key = key
    this.plans = pooling === 'single' ? undefined : new Plans()
    this.reset = RESETS[pooling]
    const fail = (error?: Error) => {
      this.failure ??= error ?? new Refusal('08006', 'the session has ended')
    }
    client.on('error', fail)
    client.on('end', fail)
  }

  /** Transaction status that Postgres reported after the last statement: `I` is outside of any transaction. */
  transactionStatus(): string | null {
    return (this.client as DriverClient).getTransactionStatus()
  }

  /** Cancels the running statement and closes the connection. */
  abort = () => {
    if (this.socket.destroyed) return
    const { processID, secretKey } = this.client as DriverClient
    // Postgres does not notice a closed connection while it runs a statement.
    if (processID !== null && secretKey !== null) cancel(this.#instance, int32(processID, secretKey)).catch(() => {})
    this.socket.destroy()
  }

  end() {
    void this.client.end()
  }
}

/** The steps of DISCARD ALL without discarding plans, which no caller can change. */
const RESET = [
  'RESET SESSION AUTHORIZATION',
  'RESET ALL',
  'CLOSE ALL',
  'UNLISTEN *',
  'SELECT pg_catalog.pg_advisory_unlock_all()',
  'DISCARD SEQUENCES',
  'DISCARD TEMP',
]

const RESETS = {
  ...{ stateless: [], single: [], reset: RESET },
  script: [...RESET, 'RESET ROLE', 'DEALLOCATE ALL'],
} as const

/** Opens a session. Retries once if the server was stopping or starting, because nothing was sent then. */
export async function openSession(instance: Instance, target: Target, timeoutMs: number): Promise<Session> {
  try {
    return await connect(instance, target, timeoutMs)
  } catch (error) {
    if (!isRestarting(error)) throw error
    return connect(instance, target, timeoutMs)
  }
}

const RESTARTING = new Set(['57P01', '57P02', '57P03', 'ECONNREFUSED', 'ENOENT', 'ECONNRESET', 'EPIPE'])

function isRestarting(error: unknown): boolean {
  if (RESTARTING.has(errorCode(error) ?? '')) return true
  return error instanceof Error && error.message === 'Connection terminated unexpectedly'
}

async function connect(instance: Instance, target: Target, timeoutMs: number): Promise<Session> {
  const socket = await connectSocket(instance, timeoutMs)
  const client = new pg.Client({
    user: target.role,
    database: target.database,
    application_name: target.applicationName,
    options: target.options,
    ssl: false,
    connectionTimeoutMillis: timeoutMs,
    stream: () => asUnconnected(socket),
    // Statements of a batch are sent together: they are one transaction, so the first failure stops the others.
    ...{ pipeline: target.pooling !== 'script' },
  })
  limitReplies(client)
  const session = new Session(instance, target, { client, socket })
  try {
    await client.connect()
  } catch (error) {
    socket.destroy()
    throw error
  }
  divertRows(socket, session)
  // The server may have ended the session in the same chunk that completed the login.
  if (session.failure) throw session.failure
  return session
}

async function connectSocket(instance: Instance, timeoutMs: number): Promise<Socket> {
  const connecting = instance.connect()
  const late = () => new InstanceUnavailable(`${instance.name} did not start in time`)
  return withTimeout(timeoutMs, connecting, late).catch((error) => {
    connecting.then(
      (socket) => socket.destroy(),
      () => {},
    )
    throw error
  })
}
