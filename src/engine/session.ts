import { Client } from '@neondatabase/serverless'
import { EngineUnavailable } from './engine.ts'
import { isDatabaseError } from './failure.ts'

const CONNECT_TIMEOUT_MS = 10_000

export interface Cluster {
  /** Superuser connection string of the maintenance database. */
  adminUrl: string
  /** The password, where the connection string has none. */
  adminPassword?: (() => Promise<string>) | undefined
  /** It is not, or no longer, the one: the next time another is to be had. */
  forgetAdminPassword?: (() => void) | undefined
  /** The cluster takes passwords as they are alone, and stores verifiers of its own making. */
  plainPasswords?: boolean | undefined
  /** Who works there, where it is no superuser: it can end those alone whom it is a member of. */
  administrator?: string | undefined
  /** Base URL of the Neon-compatible proxy; absent = Neon itself. */
  proxy?: string | undefined
  /** The way to it for HTTP, where it is not the global fetch. */
  egress?: Fetcher | undefined
}

export interface Login {
  user: string
  password: string
  database: string
  /** Server settings that hold from the first moment and win over those of the database and the role. */
  settings: Readonly<Record<string, string | number>>
}

/** One Postgres session over the driver's WebSocket. */
export interface Session {
  readonly processId: number
  readonly wire: Wire
  rows<Row>(text: string, values?: readonly unknown[]): Promise<Row[]>
  submit(exchange: Exchange): void
  close(): void
  /** Ends the connection at once, whatever is under way. */
  drop(): void
}

/** The part of the driver's connection that its types leave out. */
export interface Wire {
  readonly stream: { on(event: 'data', listener: (chunk: Uint8Array) => void): void; destroy(): void }
  on(event: 'copyOutResponse', listener: () => void): void
  on(event: 'parameterStatus', listener: (status: { parameterName: string; parameterValue: string }) => void): void
  query(text: string): void
  parse(message: { text: string }): void
  bind(message: { values: readonly (string | null)[] }): void
  describe(message: { type: 'P' }): void
  execute(message: { portal: string }): void
  sync(): void
  sendCopyFail(reason: string): void
}

/** What the driver calls while the server answers; the driver takes any object of this form as a query. */
interface Exchange {
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
  cluster: Cluster,
  work: (admin: Session) => Promise<Value>,
  database?: string,
): Promise<Value> {
  const admin = await openAdminSession(cluster, database)
  try {
    return await work(admin)
  } finally {
    admin.close()
  }
}

async function openAdminSession(cluster: Cluster, database: string | undefined): Promise<Session> {
  const url = new URL(cluster.adminUrl)
  const open = async () =>
    openSession(cluster, {
      user: decodeURIComponent(url.username),
      password: cluster.adminPassword ? await cluster.adminPassword() : decodeURIComponent(url.password),
      database: database ?? decodeURIComponent(url.pathname.slice(1)),
      settings: {
        search_path: 'pg_catalog',
        statement_timeout: 60_000,
        lock_timeout: 30_000,
        default_transaction_read_only: 'off',
      },
    })
  return open().catch((error) => {
    if (!cluster.forgetAdminPassword || !(error instanceof EngineUnavailable) || error.code !== '28P01') throw error
    cluster.forgetAdminPassword()
    return open()
  })
}

/** By cluster, whether it knows `transaction_timeout`: Postgres refuses a session over a setting that it does not know. */
const endsTransactions = new Map<string, boolean>()
const KNOWN_MAX = 1_000
const FIRST_VERSION = 17

/** No library, and no end of a transaction, that an owner has set for his database may keep the API out of it. */
export const withoutObstacles = ({ adminUrl }: Cluster): Login['settings'] => ({
  local_preload_libraries: '',
  ...(endsTransactions.get(adminUrl) && { transaction_timeout: 0 }),
})

export async function openSession(cluster: Cluster, login: Login): Promise<Session> {
  const { adminUrl } = cluster
  const known = endsTransactions.get(adminUrl)
  const { session, version } = await open(cluster, login)
  if (known !== undefined) return session
  if (endsTransactions.size >= KNOWN_MAX) endsTransactions.clear()
  endsTransactions.set(adminUrl, version >= FIRST_VERSION)
  if (version < FIRST_VERSION) return session
  session.close()
  return openSession(cluster, login)
}

async function open(cluster: Cluster, login: Login) {
  const { hostname, port } = new URL(cluster.adminUrl)
  const { user, password, database, settings } = login
  const options = Object.entries({ ...settings, ...withoutObstacles(cluster) }).map(
    ([name, value]) => `-c ${name}=${value}`,
  )
  const client = new Client({
    host: hostname,
    port: Number(port || 5432),
    user,
    password,
    database,
    options: options.join(' '),
  })
  throughProxy(client, cluster.proxy)
  // Without a listener a lost connection would be an uncaught error; the query under way hears of it anyway.
  client.on('error', () => {})
  let version = 0
  internals(client).connection.on('parameterStatus', ({ parameterName, parameterValue }) => {
    if (parameterName === 'server_version') version = Number.parseInt(parameterValue, 10)
  })
  try {
    await connected(client)
  } catch (error) {
    drop(client)
    throw unavailable(error)
  }
  const { connection, processID } = internals(client)
  const session: Session = {
    processId: processID,
    wire: connection,
    rows: async (text, values) => (await client.query(text, values && [...values])).rows,
    submit: (exchange) => submit(client, exchange),
    close: () => close(client),
    drop: () => drop(client),
  }
  return { session, version }
}

function throughProxy(client: Client, proxy: string | undefined): void {
  client.neonConfig.pipelineConnect = false
  client.neonConfig.pipelineTLS = false
  if (proxy === undefined) return
  const { host, protocol } = new URL(proxy)
  client.neonConfig.wsProxy = (address, port) => `${host}/v2?address=${address}:${port}`
  client.neonConfig.useSecureWebSocket = protocol === 'https:'
}

async function connected(client: Client): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined
  const tooLate = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new Error(`The database did not answer in ${CONNECT_TIMEOUT_MS} ms`)),
      CONNECT_TIMEOUT_MS,
    )
  })
  try {
    await Promise.race([client.connect(), tooLate])
  } finally {
    clearTimeout(timer)
  }
}

function close(client: Client): void {
  // A coalesced Terminate message would be sent after the socket's close, which workerd refuses.
  client.neonConfig.coalesceWrites = false
  void client.end()
}

function drop(client: Client): void {
  client.neonConfig.coalesceWrites = false
  internals(client).connection.stream.destroy()
}

/** The driver takes any object with these handlers as a query; its types name only `submit`, with another wire. */
function submit(client: Client, exchange: Exchange): void {
  client.query(exchange as never)
}

/** The driver's types hide these fields; they are there in the version that package.json pins. */
function internals(client: Client): { processID: number; connection: Wire } {
  return client as never
}

function unavailable(error: unknown): EngineUnavailable {
  const message = error instanceof Error ? error.message : 'The database cannot be reached'
  return new EngineUnavailable(message, { code: isDatabaseError(error) ? error.code : undefined, cause: error })
}
