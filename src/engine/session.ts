import type { Client } from '@neondatabase/serverless'
import { BoundedMap } from '../platform/bounded-map.ts'
import { connectClient, createClient, dropClient } from '../platform/db/websocket-client.ts'
import { isDatabaseError } from './database-errors.ts'
import { EngineUnavailable } from './engine-errors.ts'
import type { RowSink } from './json-rows.ts'
import type { ProjectNames } from './names.ts'

/** A Postgres server and how its administrator connects to it. */
export interface Server {
  /** Connection string of the administrator. */
  adminUrl: string
  /** The password, if the connection string has none. */
  adminPassword?: (() => Promise<string>) | undefined
  /** Drops a cached password that the server refused, so that the next connection reads it again. */
  forgetAdminPassword?: (() => void) | undefined
  /** Whether the cluster accepts only plain-text passwords, and computes the verifiers itself. */
  plainPasswords?: boolean | undefined
  /** The administrator's role if it is not a superuser: it can end only sessions of roles that it is a member of. */
  administrator?: string | undefined
  /** Base URL of the Neon-compatible proxy; absent = Neon itself. */
  proxy?: string | undefined
  /** Fetcher for HTTP requests to the server; absent = the global `fetch`. */
  egress?: Fetcher | undefined
  /** Key with which the proxy accepts every role without a password. */
  key?: string | undefined
  /** Maps a role to its login name, if the proxy serves several servers; absent = the role's own name. */
  userOf?: ((role: string) => string) | undefined
}

/** A project's database and its server. */
export interface Cluster extends Server {
  names: ProjectNames
}

/** The login name of a role; unique across projects. */
export const userOf = (server: Server, role: string): string => server.userOf?.(role) ?? role

export interface Login {
  /** The role; the proxy may use another login name for it. */
  user: string
  /** Ignored if the server has a `key`. */
  password: string
  database: string
  /** Server settings from the start of the session; they override those of the database and the role. */
  settings: Readonly<Record<string, string | number>>
}

/** One Postgres session over the driver's WebSocket. */
export interface Session {
  readonly processId: number
  readonly wire: Wire
  rows<Row>(text: string, values?: readonly unknown[]): Promise<Row[]>
  submit(exchange: Exchange): void
  close(): void
  /** Closes the connection at once, even during a query. */
  drop(): void
}

export interface ParameterStatus {
  parameterName: string
  parameterValue: string
}

/** The members of the driver's connection that its types omit. */
export interface Wire {
  readonly stream: {
    on(event: 'data', listener: (chunk: Uint8Array) => void): void
    removeListener(event: 'data', listener: (chunk: Uint8Array) => void): void
    pause(): void
    resume(): void
    destroy(): void
  }
  on(event: 'copyOutResponse', listener: () => void): void
  on(event: 'parameterStatus', listener: (status: ParameterStatus) => void): void
  removeListener(event: 'copyOutResponse', listener: () => void): void
  removeListener(event: 'parameterStatus', listener: (status: ParameterStatus) => void): void
  query(text: string): void
  parse(message: { text: string }): void
  bind(message: { values: readonly (string | null)[] }): void
  describe(message: { type: 'P' }): void
  execute(message: { portal: string }): void
  sync(): void
  sendCopyFail(reason: string): void
}

/** Opens the sessions of one project. */
export interface SessionSource {
  names: ProjectNames
  /** The login name of a role; unique across projects. */
  userOf(role: string): string
  /** Rejects with `EngineUnavailable`. */
  open(login: Login): Promise<Session>
  /** Ends a backend whose caller is gone: it could still hold locks. */
  endBackend(processId: number): Promise<void>
  /** Waits until there is memory for a large result; absent if memory is not limited. */
  reserve?: () => Promise<void>
}

/** Handlers that the driver calls while the server answers; the driver accepts any object of this shape as a query. */
interface Exchange {
  /** Receives the rows instead of `handleDataRow` if the session can deliver them in parts. */
  rows?: RowSink
  submit(wire: Wire): void
  handleRowDescription(message: { fields: readonly { name: string; dataTypeID: number }[] }): void
  handleDataRow(message: { fields: readonly (string | null)[] }): void
  handleCommandComplete(message: { text: string }): void
  handleEmptyQuery(): void
  handlePortalSuspended(): void
  handleCopyInResponse(wire: Wire): void
  handleCopyData(): void
  handleError(error: unknown): void
  handleReadyForQuery(): void
}

export async function withAdmin<Value>(
  server: Server,
  work: (admin: Session) => Promise<Value>,
  database?: string,
): Promise<Value> {
  const admin = await openAdminSession(server, database)
  try {
    return await work(admin)
  } finally {
    admin.close()
  }
}

async function openAdminSession(server: Server, database: string | undefined): Promise<Session> {
  const url = new URL(server.adminUrl)
  const open = async () =>
    openSession(server, {
      user: decodeURIComponent(url.username),
      password: server.adminPassword ? await server.adminPassword() : decodeURIComponent(url.password),
      database: database ?? decodeURIComponent(url.pathname.slice(1)),
      settings: {
        // The owner may have set a default role for the database.
        role: 'none',
        search_path: 'pg_catalog',
        statement_timeout: 60_000,
        lock_timeout: 30_000,
        default_transaction_read_only: 'off',
      },
    })
  return open().catch((error) => {
    if (!server.forgetAdminPassword || !(error instanceof EngineUnavailable) || error.code !== '28P01') throw error
    server.forgetAdminPassword()
    return open()
  })
}

const SERVERS_MAX = 1_000
/** Whether each cluster supports `transaction_timeout`: Postgres refuses a session that sets an unknown setting. */
const transactionTimeoutByServer = new BoundedMap<string, boolean>(SERVERS_MAX)
const TRANSACTION_TIMEOUT_VERSION = 17

/**
 * Overrides settings with which an owner could lock the API out of the database: libraries and a transaction timeout.
 */
const enforcedSettings = (server: Server): Login['settings'] => ({
  local_preload_libraries: '',
  ...(supportsTransactionTimeout(server) && { transaction_timeout: 0 }),
})

/** Servers with a key are hosts of this installation; every version that they run supports it. */
const supportsTransactionTimeout = ({ adminUrl, key }: Server): boolean | undefined =>
  key === undefined ? transactionTimeoutByServer.get(adminUrl) : true

/** Opens a session; reopens it once when the server turns out to support `transaction_timeout`. */
export async function openSession(server: Server, login: Login): Promise<Session> {
  const { adminUrl } = server
  const known = supportsTransactionTimeout(server)
  const { session, version } = await open(server, login)
  if (known !== undefined) return session
  transactionTimeoutByServer.set(adminUrl, version >= TRANSACTION_TIMEOUT_VERSION)
  if (version < TRANSACTION_TIMEOUT_VERSION) return session
  session.close()
  return openSession(server, login)
}

async function open(server: Server, login: Login) {
  const { hostname, port } = new URL(server.adminUrl)
  const { user, password, database, settings } = login
  const options = Object.entries({ ...settings, ...enforcedSettings(server) }).map(
    ([name, value]) => `-c ${name}=${value}`,
  )
  const config = {
    host: hostname,
    port: Number(port || 5432),
    user: userOf(server, user),
    password: server.key === undefined ? password : '',
    database,
    options: options.join(' '),
  }
  const client = createClient(config, server)
  client.neonConfig.pipelineConnect = false
  client.neonConfig.pipelineTLS = false
  let version = 0
  internals(client).connection.on('parameterStatus', ({ parameterName, parameterValue }) => {
    if (parameterName === 'server_version') version = Number.parseInt(parameterValue, 10)
  })
  await connectClient(client).catch((error) => {
    throw unavailable(error)
  })
  const { connection, processID } = internals(client)
  const session: Session = {
    processId: processID,
    wire: connection,
    rows: async (text, values) => (await client.query(text, values && [...values])).rows,
    submit: (exchange) => submit(client, exchange),
    close: () => close(client),
    drop: () => dropClient(client),
  }
  return { session, version }
}

function close(client: Client): void {
  // workerd refuses a coalesced Terminate message, which would be sent after the socket is closed.
  client.neonConfig.coalesceWrites = false
  void client.end()
}

/** The cast is safe: the driver accepts any object with these handlers, but its types declare only `submit`. */
function submit(client: Client, exchange: Exchange): void {
  client.query(exchange as never)
}

/** The cast is safe: the driver's types hide these fields, and package.json pins a version that has them. */
function internals(client: Client): { processID: number; connection: Wire } {
  return client as never
}

function unavailable(error: unknown): EngineUnavailable {
  const message = error instanceof Error ? error.message : 'The database cannot be reached'
  return new EngineUnavailable(message, { code: isDatabaseError(error) ? error.code : undefined, cause: error })
}
