import type { Socket } from 'node:net'

/** Access rules for clients. The gateway checks them before authentication, and for open sessions when they change. */
interface AccessRules {
  /** Refuse connections without TLS. */
  ssl: boolean
  /** Allowed networks in CIDR notation; null allows any. */
  networks: readonly string[] | null
}

/** The persistent state of an instance: `instance.json` in its folder. */
export interface InstanceRecord {
  /** A project's reference, `control`, or the identifier of a replica. */
  name: string
  /** Set for a replica: the instance that it follows, and the replication slot that keeps the WAL it needs. */
  primary?: { name: string; slot: string }
  /** Postgres's major version, such as `18`. */
  major: string
  /** A size that the specification names, such as `micro`. */
  size: string
  /** A paused instance starts only for a client's login, which resumes it. */
  isPaused: boolean
  /** Whether a client's login has resumed the instance and the control plane has not acknowledged that yet. */
  isWoken?: boolean
  /** Set while the instance moves to another host or from one. It accepts no clients until it is unsealed. */
  sealed?: 'leaving' | 'arriving' | undefined
  /** Settings whose restart a change has postponed: later changes of others do not restart for them. */
  postponed?: readonly string[]
  /** Postgres settings of the owner, which override those of the size. */
  settings: Readonly<Record<string, string>>
  access: AccessRules
  /** Whether WAL is archived. It is if there is a backup to apply it to. */
  isArchived?: boolean
  /** When WAL was last discarded instead of archived; undefined once a later backup is complete. ISO 8601. */
  walDiscardedAt?: string | undefined
  /** Time without a session after which the server stops; null for never, undefined for the daemon's default. */
  sleepAfterSeconds?: number | null
  /** The operating-system account that owns the data and runs the server; undefined for the daemon's own. */
  account?: { uid: number; gid: number }
  /** ISO 8601. */
  createdAt: string
}

export type InstanceState = 'running' | 'starting' | 'asleep' | 'paused' | 'failed'

/** Runs SQL as `supabase_admin`. */
export interface AdminSession {
  rows<Row extends object>(text: string, values?: readonly unknown[]): Promise<Row[]>
}

export interface InstancePaths {
  /** `<root>/instances/<name>` */
  folder: string
  data: string
  /** The server's log. */
  log: string
  /** The spool: the server puts finished WAL segments here for the archive. */
  wal: string
  /** The folder of the unix socket. */
  socket: string
}

/** The programs of one major version. */
export interface Programs {
  major: string
  /** The full version, such as `18.4`. */
  version: string
  /** The folder that contains `postgres` and `initdb`. */
  bin: string
  /** Libraries that every server loads at its start beside `pg_stat_statements`, such as `pg_cron`. */
  libraries?: readonly string[]
}

/** One Postgres server with its data. */
export interface Instance {
  readonly name: string
  readonly record: InstanceRecord
  readonly paths: InstancePaths
  readonly programs: Programs
  state(): InstanceState
  /** Starts the server if it sleeps; rejects with `InstanceUnavailable` if it is paused or cannot start. */
  wake(): Promise<void>
  /** Starts the server of a paused instance for the login of a client. A successful login resumes the instance. */
  resumeByLogin<Login>(login: () => Promise<Login>): Promise<Login>
  /** Opens a socket to the server, which is woken. The instance does not sleep until the socket closes. */
  connect(): Promise<Socket>
  /** A session that stays open while the server runs. Its use wakes the server. */
  admin: AdminSession
  /** Runs `work` in a new session as `supabase_admin`, in any database of the instance. */
  withAdmin<Value>(database: string, work: (admin: AdminSession) => Promise<Value>): Promise<Value>
  /** Changes the record and writes it to disk. A function gets the record that all earlier changes have led to. */
  update(change: Partial<InstanceRecord> | ((record: InstanceRecord) => Partial<InstanceRecord>)): Promise<void>
  /** Writes the configuration files for the record, without a reload. */
  writeConfiguration(): Promise<void>
  restart(): Promise<void>
  /** Stops the server, runs `work` while nothing can start it, and starts it again if it was running. */
  whileStopped<Value>(work: () => Promise<Value>): Promise<Value>
  /** If the server is stopped, runs `work` while nothing can start it; returns undefined if it runs. */
  unlessRunning<Value>(work: () => Promise<Value>): Promise<Value | undefined>
}

/** The instances of this machine. */
export interface Instances {
  /** Throws `InstanceUnavailable` for an instance that could not be opened. */
  find(name: string): Instance | undefined
  list(): Instance[]
}

/** The instance does not exist on this host. */
export class UnknownInstance extends Error {
  override name = 'UnknownInstance'
  constructor(instance: string) {
    super(`There is no instance ${instance} on this host`)
  }
}

/** The instance exists but cannot be used now. */
export class InstanceUnavailable extends Error {
  override name = 'InstanceUnavailable'
}

interface Refusal {
  setting: string
  reason: string
}

/** The request was refused without changing anything. */
export class Refused extends Error {
  override name = 'Refused'
  readonly refusals: readonly Refusal[]
  constructor(refusals: readonly Refusal[]) {
    super(refusals.map(({ setting, reason }) => `${setting}: ${reason}`).join('; '))
    this.refusals = refusals
  }
}
