import type { DatabaseBackups } from './backup.ts'
import type { Fence } from './fence.ts'
import type { TemporaryLogins } from './logins.ts'
import type { DatabaseLogs } from './logs.ts'
import type { Configuration, DatabaseSettings } from './settings.ts'
import type { SplitStatement } from './split-statements.ts'
import type { PostgresUpgrades } from './upgrades.ts'

export interface ProjectEngine {
  readonly name: string
  /** Version of the content of a newly created project's database; stored with each project that has it. */
  readonly preparation: string
  readonly capabilities: EngineCapabilities
  /** The options for new projects; throws `EngineUnavailable` if they are unknown. */
  listRegions(): Promise<readonly RegionOptions[]>
  /**
   * Safe to repeat after a crash at any point. Sets both passwords and leaves the project running at the version
   * `preparation`.
   */
  create(spec: ProjectSpec, fence?: Fence): Promise<void>
  /**
   * Creates a project from a consistent snapshot of another project's database, which stays in service. Safe to repeat after
   * a crash at any point; does nothing if the copy is complete.
   */
  copy(request: CopyRequest, fence?: Fence): Promise<void>
  /** SQL that turns the schema of `from` into that of `to`; empty when they are equal. */
  diff(request: DiffRequest): Promise<string>
  remove(ref: string, fence?: Fence): Promise<void>
  pause(ref: string, fence?: Fence): Promise<void>
  resume(ref: string, fence?: Fence): Promise<void>
  restart(ref: string, fence?: Fence): Promise<void>
  setPassword(ref: string, password: string): Promise<void>
  health(ref: string, timeoutMs: number): Promise<EngineHealth>
  /** The version of Postgres that the project's database runs. */
  version(ref: string): Promise<string>
  runSql(request: SqlRequest): Promise<SqlResult>
  /** Runs `work` as the project's owner, in one transaction that the owner's own SQL cannot end. */
  transaction<Value>(request: TransactionRequest, work: (tx: Transaction) => Promise<Value>): Promise<Value>
  /**
   * Runs statements as the role of the project's services, which may switch to `anon`, `authenticated` and
   * `service_role`.
   */
  runBatch(request: BatchRequest): Promise<Row[][]>
  /**
   * Brings an existing project to the version `preparation`. Each step is atomic. Fails rather than block the project's own
   * queries.
   */
  prepare(spec: Omit<ProjectSpec, 'password'>): Promise<void>
  /** The refs of all projects that have a database at the provider, whoever created it. */
  refs(): Promise<string[]>
  /** The paused projects that a client's login has resumed. Absent if the driver keeps paused projects stopped. */
  wokenRefs?(): Promise<string[]>
  readonly settings: DatabaseSettings
  readonly logins: TemporaryLogins
  readonly backups: DatabaseBackups
  /** Absent if the driver never bans addresses. */
  readonly bans?: NetworkBans
  /** Absent if the driver keeps no history. */
  readonly pointInTime?: PointInTime
  /** Absent if the driver has no read replicas. */
  readonly replicas?: ReadReplicas
  /** Absent if the driver cannot change a project's version of Postgres. */
  readonly upgrades?: PostgresUpgrades
  /** Absent if the driver cannot move projects. */
  readonly moves?: ProjectMoves
  /** Absent if the driver has no sizes. */
  readonly sizes?: ComputerSizes
  /** Absent if the driver cannot read the servers' logs. */
  readonly logs?: DatabaseLogs
  /** The machines that run the databases; absent if they do not belong to this installation. */
  machines?(): Promise<Machine[]>
  /** Resource use of the database's server, in the text format of Prometheus; absent if it is not measured. */
  metrics?(ref: string): Promise<string>
  /** The bytes with which a program's connection to its database begins; absent if the provider knows no such connections. */
  programRequest?(ref: string): Promise<Uint8Array>
  /** The address and user for connections as the owner, or as another role of the project. */
  connection(project: ConnectedProject, role?: string): ProjectConnection
}

/** A region that accepts new projects, with the options it offers. */
export interface RegionOptions {
  region: string
  /** Major versions of Postgres, the default one first. */
  versions: readonly string[]
  /** Absent if the driver has no sizes. */
  sizes?: ReadonlySet<string>
}

export interface Machine {
  name: string
  /** Absent while the machine does not answer. */
  capacity?: { instances: number } & Record<'memoryBytes' | 'memoryFreeBytes' | 'diskBytes' | 'diskFreeBytes', number>
}

/** Addresses that a project's database refuses after repeated failed logins. */
interface NetworkBans {
  list(ref: string): Promise<string[]>
  /** Ignores addresses that are not banned. */
  lift(ref: string, addresses: readonly string[]): Promise<void>
}

interface EngineCapabilities {
  /** Whether the driver makes backups, on demand and daily. */
  readonly backups: boolean
  /** Whether temporary logins can be restricted to networks. */
  readonly loginNetworks: boolean
  /** Whether the provider sees the plain-text passwords of roles. */
  readonly exposesPasswords: boolean
  /** Whether connections without TLS are accepted unless a project refuses them. */
  readonly plainConnections: boolean
  /** Whether Postgres settings can be changed while the database takes no connections. */
  readonly offlineSettings: boolean
}

export interface ProjectSpec {
  ref: string
  password: string
  runnerPassword: string
  /** The region, for drivers that offer several. */
  region?: string
  /** Create the database on the same host as this project, for drivers with several hosts in a region. */
  beside?: string
  /** The instance size, for drivers that offer sizes. */
  size?: string
  /** The major version of Postgres, for drivers that offer several; absent for the driver's default. */
  version?: string
  /**
   * The idle time after which the database sleeps, if the driver supports it; null = never, absent = the driver's
   * default.
   */
  sleepAfterSeconds?: number | null
}

export interface DiffRequest {
  /** The database to run the SQL in. */
  from: DiffSide
  /** The database whose schema is the target. */
  to: DiffSide
  /** Absent = all schemas of the user. A schema that neither side has contributes nothing. */
  schemas?: readonly string[]
  timeoutMs?: number
}

interface DiffSide {
  ref: string
  runnerPassword: string
}

export interface CopyRequest {
  from: string
  fromRunnerPassword: string
  to: ProjectSpec
  /** False copies the schema and the migration history only. */
  data: boolean
}

/** Point-in-time restore from a database's history. */
export interface PointInTime {
  /** The range of times that the database can be restored to. */
  window(ref: string, now: Date): Promise<{ earliest: Date; latest: Date }>
  /**
   * Returns once the provider has accepted the restore; idempotent by `id`. Rejects with `EngineRefusal` if it is
   * impossible.
   */
  begin(request: PointInTimeRequest, fence?: Fence): Promise<void>
  /**
   * Waits for the restore, ends the logins that came back with the old data, and sets both passwords to those of the
   * request.
   */
  finish(request: PointInTimeRequest & ProjectSpec, fence?: Fence): Promise<void>
}

/** Read-only standbys that follow a project's database. */
export interface ReadReplicas {
  list(project: ConnectedProject): Replica[]
  /** Safe to repeat after a crash at any point. Rejects with `EngineRefusal` if a replica is not available. */
  add(ref: string, identifier: string, fence?: Fence): Promise<void>
  /** Succeeds if the replica does not exist. */
  remove(ref: string, identifier: string, fence?: Fence): Promise<void>
}

export interface Replica {
  identifier: string
  isReady: boolean
  hasFailed?: boolean | undefined
  host: string
  poolerHost: string
  /** The user, if it differs from the primary's. */
  user?: string
}

/** Moves of projects between the operator's hosts. */
export interface ProjectMoves {
  /**
   * Recreates the instance on the target host, up to its last commit, and returns the columns to store with the project.
   * Afterwards neither host serves the project until `open`; on failure the source serves it again. Safe to repeat.
   */
  begin(request: MoveRequest, fence?: Fence): Promise<{ engineState: unknown; region: string }>
  /** Replaces the cached host of a project that has moved. */
  updateHost(ref: string, host: string): void
  /** Starts to serve the project on this host. */
  open(ref: string, host: string, fence?: Fence): Promise<void>
  /** Removes the instance from a host that the project has left; its archive stays. */
  removeFrom(ref: string, host: string, fence?: Fence): Promise<void>
  /** Instances that are not served because a move is under way or was interrupted. */
  listSealed(): Promise<{ ref: string; host: string; hasArrived: boolean }[]>
}

export interface MoveRequest {
  spec: ProjectSpec
  from: string
  to: string
  isPaused: boolean
  /** The settings that the project has chosen; the target host may refuse them. */
  configuration: Configuration
  /** The source host is lost: restore from its archive alone. */
  isSourceLost: boolean
}

/** Sizes of the machine that a database runs on. */
interface ComputerSizes {
  /** The sizes that the project can have; without a project, those that any can have. */
  offered(ref?: string): Promise<ReadonlySet<string>>
  /** May end sessions. Rejects with `EngineRefusal` if the size is not available. */
  set(ref: string, size: string, fence?: Fence): Promise<void>
}

export interface PointInTimeRequest {
  ref: string
  /** Id of the restore. */
  id: string
  at: Date
}

export interface EngineHealth {
  healthy: boolean
  /** A sleeping database is healthy: the next session wakes it. */
  isAsleep?: boolean
  error?: string
}

export interface ConnectedProject {
  ref: string
  /** Driver state stored with the project. */
  engineState: unknown
}

interface ProjectConnection {
  host: string
  /** Address of a pooler in transaction mode, on the same port. */
  poolerHost?: string
  port: number
  user: string
  database: string
  /** Whether the database is on the host of the settings. */
  isOnLocalHost: boolean
}

export interface SqlRequest {
  ref: string
  runnerPassword: string
  query: string
  parameters?: readonly unknown[]
  readOnly: boolean
  timeoutMs?: number
}

export type TransactionRequest = Pick<SqlRequest, 'ref' | 'runnerPassword' | 'timeoutMs'>

export interface Transaction {
  rows<Found extends object>(text: string, params?: readonly unknown[]): Promise<Found[]>
  /** Runs the owner's statements, then resets the session settings that they changed. */
  run(statements: readonly SplitStatement[]): Promise<void>
}

export type Row = Record<string, unknown>

export interface Statement {
  text: string
  params: readonly unknown[]
}

export interface BatchRequest {
  ref: string
  runnerPassword: string
  /** The service whose role runs the statements. */
  service?: 'storage' | 'dataApi'
  /** Run in one transaction. */
  statements: readonly Statement[]
  /** The isolation level of the transaction; absent = the default of the sessions. */
  isolation?: 'RepeatableRead' | 'Serializable' | undefined
  /** Positions, from 0, of a statement with one row and of its text column that may be returned as bytes or as a stream. */
  separate?: { statement: number; column: number } | undefined
  /** Only requests with the same key share a session, which keeps settings and prepared statements. No white space. */
  sessionKey?: string | undefined
}

/** JSON text: an array of the last statement's rows as objects. */
export type SqlResult = string | ReadableStream<Uint8Array>

/** Parses the rows of a result. Large numbers lose the precision that the JSON text has. */
export const parseRows = async (result: SqlResult): Promise<unknown[]> => new Response(result).json()
