import type { Socket } from 'node:net'

/** Access rules for clients; the gateway checks them before it authenticates anybody, and for sessions that are open. */
interface AccessRules {
  /** Refuse connections without TLS. */
  ssl: boolean
  /** In CIDR notation; null for any. */
  networks: readonly string[] | null
}

/** The facts of an instance that must survive a restart of the daemon: `instance.json` in its folder. */
export interface InstanceRecord {
  /** A project's reference, `control`, or the identifier of a replica. */
  name: string
  /** Of a replica: the instance that it follows, and the replication slot that holds back the WAL it needs. */
  primary?: { name: string; slot: string }
  /** Postgres's major version, such as `18`. */
  major: string
  /** A size that the specification names, such as `micro`. */
  size: string
  /** A paused instance starts only for a client's login, which resumes it. */
  isPaused: boolean
  /** A client's login has resumed it, which the control plane has not acknowledged yet. */
  isWoken?: boolean
  /** It serves nobody: it is about to be on another host, or has just come from one. Only `unseal` opens it. */
  sealed?: 'leaving' | 'arriving' | undefined
  /** Postgres settings that the owner has chosen, over those of the size. */
  settings: Readonly<Record<string, string>>
  access: AccessRules
  /** Whether WAL goes to the archive, as there is a backup that it completes. */
  isArchived?: boolean
  /** The id of the last restore to a moment, which is not done again. */
  restoredBy?: string
  /** Stop after so long without a session; null for never, absent for the daemon's default. */
  sleepAfterSeconds?: number | null
  /** The operating-system account that owns the data and runs the server; absent for the daemon's own. */
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
  /** Receives the server's finished WAL segments for the archive. */
  wal: string
  /** The folder of the unix socket. */
  socket: string
}

/** The programs of one major version. */
export interface Programs {
  major: string
  /** Such as `18.4`. */
  version: string
  /** Holds `postgres` and `initdb`. */
  bin: string
  /** Loaded at the start of each server beside `pg_stat_statements`, such as `pg_cron`. */
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
  /** Runs the login of a client with the server of a paused instance started. A login that succeeds resumes the instance. */
  resumeByLogin<Login>(login: () => Promise<Login>): Promise<Login>
  /** A socket to the server, awake, before the startup message. Counts as use until it closes. */
  connect(): Promise<Socket>
  /** Over one session that is kept while the server runs. Wakes it. */
  admin: AdminSession
  /** As `supabase_admin` in a session of its own, in any database of the instance. */
  withAdmin<Value>(database: string, work: (admin: AdminSession) => Promise<Value>): Promise<Value>
  /** Writes the record; the change is on disk when this resolves. */
  update(change: Partial<InstanceRecord>): Promise<void>
  /** Renders and writes the configuration files of the record; does not reload. */
  writeConfiguration(): Promise<void>
  restart(): Promise<void>
  /** Stops the server, runs `work` on its data folder while nobody can wake it, and starts it again if it was running. */
  whileStopped<Value>(work: () => Promise<Value>): Promise<Value>
  /** Runs `work` on the files of a server that has stopped, while nobody can wake it; undefined if it runs. */
  unlessRunning<Value>(work: () => Promise<Value>): Promise<Value | undefined>
}

/** The instances of this machine. */
export interface Instances {
  find(name: string): Instance | undefined
  list(): Instance[]
}

/** No such instance. */
export class UnknownInstance extends Error {
  override name = 'UnknownInstance'
  constructor(instance: string) {
    super(`There is no instance ${instance} on this host`)
  }
}

/** The instance exists and cannot be used now. */
export class InstanceUnavailable extends Error {
  override name = 'InstanceUnavailable'
}

interface Refusal {
  setting: string
  reason: string
}

/** The request cannot be fulfilled, and nothing has changed. */
export class Refused extends Error {
  override name = 'Refused'
  readonly refusals: readonly Refusal[]
  constructor(refusals: readonly Refusal[]) {
    super(refusals.map(({ setting, reason }) => `${setting}: ${reason}`).join('; '))
    this.refusals = refusals
  }
}
