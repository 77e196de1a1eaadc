import type { DatabaseBackups } from './backup.ts'
import type { DiffRequest } from './diff/diff.ts'
import type { TemporaryLogins } from './logins.ts'
import type { DatabaseLogs } from './logs.ts'
import type { DatabaseSettings } from './settings.ts'
import type { SplitStatement } from './split-statements.ts'
import type { PostgresUpgrades } from './upgrades.ts'

export interface ProjectEngine {
  readonly name: string
  /** Version of the content of a newly created project's database. */
  readonly preparation: string
  readonly capabilities: EngineCapabilities
  /** The options for new projects; throws `EngineUnavailable` if they are unknown. */
  places(): Promise<readonly Place[]>
  /** Safe to repeat after a crash at any point; sets both passwords and leaves the project running, with what `preparation` names. */
  create(spec: ProjectSpec, fence?: Fence): Promise<void>
  /**
   * Makes a project out of another one's database, from one moment of it, while it goes on working. Safe to repeat after a
   * crash at any point; a copy that is whole stays as it is.
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
  /** As the project's owner, in one transaction that the owner's own SQL cannot end. */
  transaction<Value>(request: TransactionRequest, work: (tx: Transaction) => Promise<Value>): Promise<Value>
  /** As the role of the project's own services, which may take on `anon`, `authenticated` and `service_role`. */
  runBatch(request: BatchRequest): Promise<Row[][]>
  /**
   * Brings a project that was made before to what `preparation` names. Each part of it is done or not, and it fails rather than
   * keep the project's own work waiting.
   */
  upgrade(spec: Omit<ProjectSpec, 'password'>): Promise<void>
  /** Of all projects that have a database, whoever made them. */
  refs(): Promise<string[]>
  readonly settings: DatabaseSettings
  readonly logins: TemporaryLogins
  readonly backups: DatabaseBackups
  /** Absent where no address is ever banned. */
  readonly bans?: NetworkBans
  /** Absent where no history is kept. */
  readonly pointInTime?: PointInTime
  /** Absent where there are none. */
  readonly replicas?: ReadReplicas
  /** Absent where projects keep the Postgres that they were made with. */
  readonly upgrades?: PostgresUpgrades
  /** Absent where projects stay where they are made. */
  readonly moves?: ProjectMoves
  /** Absent where all databases share one computer. */
  readonly sizes?: ComputerSizes
  /** Absent where the servers' logs cannot be read. */
  readonly logs?: DatabaseLogs
  /** The machines that carry databases; absent where they are not this installation's own. */
  machines?(): Promise<Machine[]>
  /** Resource use of the database's server, in the text format of Prometheus; absent if it is not measured. */
  metrics?(ref: string): Promise<string>
  /** As the owner, or as another role of the project. */
  connection(project: ConnectedProject, role?: string): ProjectConnection
}

/**
 * Asked once nobody else can work on the project any more, before anything is done: whether the one who asked for the
 * operation still may. A driver that cannot keep others away asks before each thing that it does. A refusal ends the
 * operation with `Superseded`.
 */
export type Fence = () => Promise<boolean>

/** A region that takes new projects, and what it offers them. */
export interface Place {
  region: string
  /** Major versions of Postgres, the default one first. */
  versions: readonly string[]
  /** Absent where the driver has no sizes. */
  sizes?: ReadonlySet<string>
}

export interface Machine {
  name: string
  /** Absent while it does not answer. */
  capacity?: { instances: number } & Record<'memoryBytes' | 'memoryFreeBytes' | 'diskBytes' | 'diskFreeBytes', number>
}

/** Addresses that a project's database refuses after repeated failures to log in. */
interface NetworkBans {
  of(ref: string): Promise<string[]>
  /** An address that is not banned stays as it is. */
  lift(ref: string, addresses: readonly string[]): Promise<void>
}

interface EngineCapabilities {
  /** On demand and daily. */
  readonly backups: boolean
  /** Whether temporary logins can be bound to networks. */
  readonly loginNetworks: boolean
  /** Whether others get to know the passwords of roles as they are. */
  readonly tellsPasswords: boolean
  /** Whether connections without TLS are taken, unless a project refuses them. */
  readonly plainConnections: boolean
}

export interface ProjectSpec {
  ref: string
  password: string
  runnerPassword: string
  /** The region, for drivers that offer several. */
  region?: string
  /** A project that it is to be beside, for drivers with several places in a region. */
  beside?: string
  /** How large, for drivers that offer sizes. */
  size?: string
  /** Postgres's major version, for drivers that offer several; absent for the driver's default. */
  version?: string
  /** Idle databases stop after so long, for drivers that can; null for never, absent for the driver's default. */
  sleepAfterSeconds?: number | null
}

export interface CopyRequest {
  from: string
  fromRunnerPassword: string
  to: ProjectSpec
  /** False for the schema alone, with the history of its migrations. */
  data: boolean
}

/** A database's own history. */
export interface PointInTime {
  /** The moments that the database can be put back to. */
  window(ref: string, now: Date): Promise<{ earliest: Date; latest: Date }>
  /** Returns once it has been taken on; repeated under the same id it is the same. What cannot be is `EngineRefusal`. */
  begin(request: PointInTimeRequest, fence?: Fence): Promise<void>
  /** Waits for it, and sees to it that who may come in is who may now; both passwords become those of the request. */
  finish(request: PointInTimeRequest & ProjectSpec, fence?: Fence): Promise<void>
}

/** Databases beside a project's own that follow it and only read. */
export interface ReadReplicas {
  of(project: ConnectedProject): Replica[]
  /** Safe to repeat after a crash at any point. What cannot be had is `EngineRefusal`. */
  add(ref: string, identifier: string, fence?: Fence): Promise<void>
  /** One that is not there has been removed. */
  remove(ref: string, identifier: string, fence?: Fence): Promise<void>
}

export interface Replica {
  identifier: string
  isReady: boolean
  host: string
  poolerHost: string
  /** The user, if it differs from the primary's. */
  user?: string
}

/** From one host of the operator's to another. */
export interface ProjectMoves {
  /**
   * Makes the project's instance on the other host, up to its last commit, and returns the columns that make it the project's.
   * From then on neither serves until it is opened; if this fails, the project is served where it was. Safe to repeat.
   */
  begin(request: MoveRequest, fence?: Fence): Promise<{ engineState: unknown; region: string }>
  /** The host of a project has changed: what is remembered of it is wrong. */
  moved(ref: string, host: string): void
  /** Lets callers in. */
  open(ref: string, host: string, fence?: Fence): Promise<void>
  /** Removes the instance from a host that the project has left; its archive stays. */
  leave(ref: string, host: string, fence?: Fence): Promise<void>
  /** Instances that serve nobody, as they are about to move or a move was cut off. */
  sealed(): Promise<{ ref: string; host: string; hasArrived: boolean }[]>
}

interface MoveRequest {
  spec: ProjectSpec
  from: string
  to: string
  isPaused: boolean
  /** What has been archived is all there is. */
  isSourceLost: boolean
}

/** Of the computer that a database runs on. */
interface ComputerSizes {
  readonly offered: ReadonlySet<string>
  /** Sessions may end. What cannot be had is `EngineRefusal`. */
  set(ref: string, size: string, fence?: Fence): Promise<void>
}

export interface PointInTimeRequest {
  ref: string
  /** Of the restore. */
  id: string
  at: Date
}

export interface EngineHealth {
  healthy: boolean
  /** A database that sleeps is healthy: the next session wakes it. */
  isAsleep?: boolean
  error?: string
}

interface ConnectedProject {
  ref: string
  /** Driver state stored with the project. */
  engineState: unknown
}

interface ProjectConnection {
  host: string
  /** The address of a pooler in transaction mode, on the same port. */
  poolerHost?: string
  port: number
  user: string
  database: string
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
  /** Runs the owner's statements; what they set for the session does not outlive them. */
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
  /** One transaction. */
  statements: readonly Statement[]
}

/** The text of a JSON array: the rows of the last statement as objects. */
export type SqlResult = string | ReadableStream<Uint8Array>

/** Numbers lose digits here that the text has. */
export const rowsOf = async (result: SqlResult): Promise<unknown[]> => new Response(result).json()

/** Postgres's error for a statement; `position` counts characters from 1. */
export interface SqlErrorFields {
  severity?: string
  code: string
  message: string
  position?: number
  hint?: string
  detail?: string
  where?: string
  schema?: string
  table?: string
  column?: string
  constraint?: string
  /** The statement of several that was refused. */
  statement?: string
}

/** The driver does not support this operation. */
export class NotByDriver extends Error {
  override name = 'NotByDriver'
}

/** The provider of the databases refused this for good; nothing has changed. */
export class EngineRefusal extends Error {
  override name = 'EngineRefusal'
}

/** The operation was given up before it did anything, or anything more, as its fence refused. */
export class Superseded extends Error {
  override name = 'Superseded'
}

export class SqlError extends Error implements SqlErrorFields {
  readonly severity: string
  readonly code: string
  readonly position?: number
  readonly hint?: string
  readonly detail?: string
  readonly where?: string
  readonly schema?: string
  readonly table?: string
  readonly column?: string
  readonly constraint?: string
  readonly statement?: string

  constructor(fields: SqlErrorFields) {
    super(fields.message)
    this.name = 'SqlError'
    this.severity = fields.severity ?? 'ERROR'
    this.code = fields.code
    this.position = fields.position
    this.hint = fields.hint
    this.detail = fields.detail
    this.where = fields.where
    this.schema = fields.schema
    this.table = fields.table
    this.column = fields.column
    this.constraint = fields.constraint
    this.statement = fields.statement
  }
}

export class SqlTimeout extends Error {
  override readonly name = 'SqlTimeout'
  readonly timeoutMs: number

  constructor(timeoutMs: number) {
    super(`The query was stopped after ${timeoutMs} ms`)
    this.timeoutMs = timeoutMs
  }
}

export class SqlResultTooLarge extends Error {
  override readonly name = 'SqlResultTooLarge'

  readonly sizeBytesMax: number

  constructor(sizeBytesMax: number) {
    super(`The result is larger than ${sizeBytesMax} bytes`)
    this.sizeBytesMax = sizeBytesMax
  }
}

/** No session could be had: unreachable, paused, unknown project, or too many connections. */
export class EngineUnavailable extends Error {
  override readonly name = 'EngineUnavailable'
  readonly code?: string

  constructor(message: string, options?: { code?: string; cause?: unknown }) {
    super(message, { cause: options?.cause })
    this.code = options?.code
  }
}

/** Another operation on the project is still at work, maybe for a caller that is gone: its end has to be waited for. */
export class EngineBusy extends EngineUnavailable {}

/** No new database fits anywhere: nothing has begun. */
export class NoRoom extends EngineUnavailable {}
