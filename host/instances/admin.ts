import type { EventEmitter } from 'node:events'
import type { Socket } from 'node:net'
import pg from 'pg'
import { errorCode } from '../../dev/start-error.ts'
import { CHOSEN_PASSWORD_ITERATIONS, scramVerifier } from '../../src/engine/scram.ts'
import { Mutex } from './mutex.ts'
import { type AdminSession, InstanceUnavailable } from './types.ts'

/** Settings of the daemon's own sessions. They override what the owner has set for the database. */
export const SESSION_OPTIONS: readonly (readonly [name: string, value: string | number])[] = [
  ['search_path', 'pg_catalog'],
  ['role', 'none'],
  ['statement_timeout', 0],
  ['lock_timeout', '30s'],
  ['idle_session_timeout', 0],
  ['idle_in_transaction_session_timeout', 0],
  ['transaction_timeout', 0],
  ['default_transaction_read_only', 'off'],
  ['default_transaction_isolation', 'read\\ committed'],
  ['local_preload_libraries', ''],
  ['synchronous_commit', 'on'],
]

/** Settings of sessions of the superuser; other roles may not set all of them. */
export const SUPERUSER_OPTIONS = [...SESSION_OPTIONS, ['session_replication_role', 'origin']] as const

export const optionsText = (options: typeof SESSION_OPTIONS): string =>
  options.map(([name, value]) => `-c ${name}=${value}`).join(' ')

/** SQLSTATE of a server that recovers or stops. */
const STARTING_UP = '57P03'

const MIB = 1024 * 1024
const REPLY_BYTES_MAX = 32 * MIB

/**
 * Ends the session if Postgres sends more than a limit for one statement. The owner chooses names, comments and notices, which the
 * driver keeps in memory; one longer than a text can be would crash the host.
 */
export function limitReplies(client: pg.Client): void {
  const { connection } = client as unknown as { connection: EventEmitter & { stream: Socket } }
  const { stream } = connection
  let bytes = 0
  connection.on('readyForQuery', () => {
    bytes = 0
  })
  stream.on('data', (chunk: Buffer) => {
    bytes += chunk.length
    if (bytes <= REPLY_BYTES_MAX) return
    stream.destroy(new Error(`Postgres has sent more than ${REPLY_BYTES_MAX / MIB} MiB for one statement`))
  })
}

/** Opens a superuser session over the unix socket in `folder`. */
export async function openAdmin(folder: string, database: string): Promise<AdminSession & { end(): Promise<void> }> {
  const client = new pg.Client({
    host: folder,
    port: 5432,
    user: 'supabase_admin',
    database,
    options: optionsText(SUPERUSER_OPTIONS),
    application_name: 'pilothouse',
  })
  // Ignored: after a lost connection the next query fails.
  client.on('error', () => {})
  limitReplies(client)
  await client.connect().catch((error) => {
    throw errorCode(error) === STARTING_UP ? new InstanceUnavailable(error.message) : error
  })
  const mutex = new Mutex()
  return {
    // Without values the simple protocol allows several statements; the rows of the last one are returned.
    rows: <Row extends object>(text: string, values?: readonly unknown[]) =>
      mutex.run(async () => rowsOf<Row>(await client.query(text, values && [...values]))),
    end: () => client.end(),
  }
}

/** Makes a connected socket usable for the driver, which always calls `connect` on its socket. */
export function asUnconnected(socket: Socket): Socket {
  return Object.assign(socket, {
    connect() {
      process.nextTick(() => socket.emit('connect'))
      return socket
    },
  })
}

/** Runs `work` in a new superuser session. */
export async function withAdminAt<Value>(
  folder: string,
  database: string,
  work: (admin: AdminSession) => Promise<Value>,
): Promise<Value> {
  const admin = await openAdmin(folder, database)
  try {
    return await work(admin)
  } finally {
    await admin.end().catch(() => {})
  }
}

/** Sends only the verifier to Postgres, so that no recorded statement contains the password. */
export async function setOwnerPassword(admin: AdminSession, password: string): Promise<void> {
  const verifier = await scramVerifier(password, CHOSEN_PASSWORD_ITERATIONS)
  await admin.rows(`ALTER ROLE postgres PASSWORD '${verifier}'`)
}

function rowsOf<Row extends object>(result: pg.QueryResult | pg.QueryResult[]): Row[] {
  const last = Array.isArray(result) ? result.at(-1) : result
  return (last?.rows ?? []) as Row[]
}
