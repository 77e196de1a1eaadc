import { once } from 'node:events'
import { connect as connectSocket, type Socket } from 'node:net'
import { userInfo } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { errorMessage } from '../../dev/start-error.ts'
import { listAllSlots } from '../replicas/slots.ts'
import type { Limits } from '../settings/cgroup.ts'
import { renderConfiguration } from '../settings/configuration.ts'
import { openAdmin, withAdminAt } from './admin.ts'
import { diskProblem } from './disk.ts'
import { folderBytes, makePrivate, newestChange, readOwned, replaceFile } from './files.ts'
import { Mutex, type Semaphore } from './mutex.ts'
import { writeRecord } from './record.ts'
import { adoptServer, type Server, signal, startServer } from './server.ts'
import {
  type AdminSession,
  type Instance,
  type InstancePaths,
  type InstanceRecord,
  type InstanceState,
  InstanceUnavailable,
  type Programs,
} from './types.ts'

/** Facts that all instances of a host share. */
export interface HostFacts {
  isDurable: boolean
  /** Time without a session after which an instance sleeps, if its record names no other; null for never. */
  sleepAfterSeconds: number | null
  memoryBytes: number
  isArchiving: boolean
  programsOf(major: string): Programs
  /** Limits the memory and processors of servers to their size. */
  limits: Limits
  /** Bounds the number of servers that begin to start at the same time. */
  starts: Semaphore
  log(event: string, fields: Record<string, unknown>): void
  events: InstanceEvents
}

export interface InstanceEvents {
  /** Awaited before a server starts; its socket folder exists. */
  starting(instance: PostgresInstance): Promise<void>
  /** Called when a server was started or adopted. */
  started(instance: PostgresInstance): void
}

/** Limit for the time that a start counts against `starts`: a recovery may take hours. */
const SLOT_MS = 2_000
/** A standby may have to wait for the end of a transaction of its primary before it serves reads. */
const STANDBY_SECONDS_MAX = 30
const BACK_OFF_MS = { first: 100, max: 30_000 }
const SIZE_TTL_MS = 30_000
/** Age of a size after which it is measured again even if the server has written no WAL. */
const UNWRITTEN_SIZE_TTL_MS = 5 * 60_000
/** A server that has run for this long started successfully, so the back-off is reset. */
const STABLE_MS = 60_000

export const MOVING = 'The project is moving to another host'

type Change = Partial<InstanceRecord>
type Admin = AdminSession & { end(): Promise<void> }

export class PostgresInstance implements Instance {
  readonly paths: InstancePaths
  /** The phase of an upgrade that is under way. */
  upgrade: 'launch' | 'copy' | 'complete' | 'switch' | undefined
  failedUpgrade: { id: string; error: unknown } | undefined
  readonly #facts: HostFacts
  readonly #transitions = new Mutex()
  readonly #changes = new Mutex()
  #record: InstanceRecord
  #server: Server | undefined
  #isStarting = false
  #failure: string | undefined
  #admin: Promise<Admin> | undefined
  #uses = 0
  /** Logins of clients and backups that may start the server of the paused instance. */
  #pausedUses = 0
  #usedAt = Date.now()
  #endedAt = Date.now()
  #backOffMs = BACK_OFF_MS.first
  #restart: NodeJS.Timeout | undefined
  #isShutDown = false
  /** The reason why clients are refused now; undefined if they are not. */
  #closedReason: string | undefined
  #size: { at: number; bytes: number } | undefined

  constructor(record: InstanceRecord, place: { paths: InstancePaths; facts: HostFacts }) {
    this.#record = record
    this.paths = place.paths
    this.#facts = place.facts
  }

  get name(): string {
    return this.#record.name
  }

  get record(): InstanceRecord {
    return this.#record
  }

  get programs(): Programs {
    return this.#facts.programsOf(this.#record.major)
  }

  /**
   * The size of the data on disk, measured at most `ageMsMax` ago. It may be some minutes old if the server has written no WAL
   * since, because reading the sizes of all files takes tens of milliseconds of processor time. `ageMsMax: 0` always measures.
   */
  async sizeBytes(ageMsMax = SIZE_TTL_MS): Promise<number> {
    if (this.#size && (await this.#isFresh(this.#size.at, ageMsMax))) return this.#size.bytes
    const at = Date.now()
    const bytes = await folderBytes(this.paths.data)
    this.#size = { at, bytes }
    return bytes
  }

  async #isFresh(at: number, ageMsMax: number): Promise<boolean> {
    const ageMs = Date.now() - at
    if (ageMsMax === 0) return false
    if (ageMs < ageMsMax) return true
    if (!this.#server) return at > this.#endedAt
    // Temporary files come and go without WAL.
    if (ageMs > UNWRITTEN_SIZE_TTL_MS) return false
    const changedAt = await newestChange(join(this.paths.data, 'pg_wal')).catch(() => Date.now())
    // The times of files may be some milliseconds behind.
    return changedAt < at - 1_000
  }

  /** The reason why the last start of the server failed; undefined after a successful start. */
  get failure(): string | undefined {
    return this.#failure
  }

  get pid(): number | undefined {
    return this.#server?.pid
  }

  state(): InstanceState {
    if (this.#isClosed) return 'paused'
    if (this.#server) return 'running'
    if (this.#isStarting) return 'starting'
    return this.#failure === undefined ? 'asleep' : 'failed'
  }

  readonly admin: AdminSession = {
    rows: async <Row extends object>(text: string, values?: readonly unknown[]) => {
      await this.wake()
      this.#usedAt = Date.now()
      const admin = this.#admin ?? openAdmin(this.paths.socket, 'postgres')
      this.#admin = admin
      try {
        return await (await admin).rows<Row>(text, values)
      } catch (error) {
        // After the error of a statement the session can still be used.
        if (!isStatementError(error)) this.#closeAdmin()
        throw error
      }
    },
  }

  async withAdmin<Value>(database: string, work: (admin: AdminSession) => Promise<Value>): Promise<Value> {
    const release = this.#use()
    try {
      await this.wake()
      return await withAdminAt(this.paths.socket, database, work)
    } finally {
      release()
    }
  }

  /** Adopts a server that an earlier daemon has left running. */
  async adopt(): Promise<boolean> {
    return this.#transitions.run(async () => {
      await this.#readMajorVersion()
      const server = await adoptServer(this.paths)
      // A closed instance has a server only if a daemon was killed during a backup, a move or a login.
      if (this.#isClosed) await server?.stop()
      else if (server) {
        this.#setServer(server)
        await this.#reload(server)
      }
      return server !== undefined && !this.#isClosed
    })
  }

  /** Makes a running server use the record, which has changed since its start or under a killed daemon. */
  async #reload({ pid }: Server): Promise<void> {
    try {
      await this.writeConfiguration()
      process.kill(pid, 'SIGHUP')
    } catch (error) {
      this.#facts.log('configuration_not_applied', { instance: this.name, error: String(error) })
    }
  }

  async wake(): Promise<void> {
    if (this.#server && !this.#isClosed) return
    await this.#transitions.run(() => this.#start())
  }

  async connect(): Promise<Socket> {
    const release = this.#use()
    try {
      if (this.#closedReason !== undefined) throw new InstanceUnavailable(this.#closedReason)
      await this.wake()
      const socket = connectSocket(join(this.paths.socket, '.s.PGSQL.5432'))
      await once(socket, 'connect')
      socket.once('close', release)
      return socket
    } catch (error) {
      release()
      if (error instanceof InstanceUnavailable) throw error
      throw new InstanceUnavailable(`The database does not answer: ${error instanceof Error ? error.message : error}`)
    }
  }

  async update(change: Change | ((record: InstanceRecord) => Change)): Promise<void> {
    await this.#changes.run(async () => {
      const record = { ...this.#record, ...(typeof change === 'function' ? change(this.#record) : change) }
      await writeRecord(this.paths.folder, record, this.#facts.isDurable)
      this.#record = record
    })
  }

  async writeConfiguration(): Promise<void> {
    const { memoryBytes, isDurable, isArchiving } = this.#facts
    const facts = { memoryBytes, isDurable, isArchiving, paths: this.paths, programs: this.programs }
    const slots = await listAllSlots(this)
    await Promise.all([
      this.#writeData('postgresql.conf', renderConfiguration(this.#record, facts, slots.length)),
      this.#writeData('pg_hba.conf', 'local all all peer map=host\nlocal replication all peer map=host\n'),
      this.#writeData('pg_ident.conf', `host "${userInfo().username}" /^(.*)$ \\1\n`),
    ])
  }

  async pause(): Promise<void> {
    await this.update({ isPaused: true, isWoken: false })
    await this.#transitions.run(() => this.#stop())
  }

  /** Closes the instance for clients and stops its server. */
  async seal(): Promise<void> {
    await this.update(({ sealed = 'leaving' }) => ({ sealed }))
    await this.#transitions.run(() => this.#stop())
  }

  async unseal(): Promise<void> {
    if (!this.#record.sealed) return
    await this.update({ sealed: undefined })
    if (!this.#record.isPaused) await this.wake()
  }

  async resume(): Promise<void> {
    await this.update({ isPaused: false, isWoken: false })
    // A backup may have started the server while the instance was paused.
    if (this.#server) await this.#reload(this.#server)
    await this.wake()
    await this.#allowConnections()
  }

  async resumeByLogin<Login>(login: () => Promise<Login>): Promise<Login> {
    return this.whileStartable(async () => {
      const result = await login()
      if (this.#record.isPaused) {
        await this.update(({ isPaused }) => (isPaused ? { isPaused: false, isWoken: true } : {}))
        if (this.#server) await this.#reload(this.#server)
      }
      return result
    })
  }

  /** Lets `work` start the server even if the instance is paused. Afterwards it stops, unless a login has resumed the instance. */
  async whileStartable<Value>(work: () => Promise<Value>): Promise<Value> {
    this.#pausedUses += 1
    try {
      return await work()
    } finally {
      this.#pausedUses -= 1
      await this.#transitions.run(async () => {
        if (this.#isClosed && this.#pausedUses === 0) await this.#stop()
      })
    }
  }

  async restart(): Promise<void> {
    await this.#transitions.run(async () => {
      await this.#stop()
      await this.#start()
    })
    await this.#allowConnections()
  }

  async whileStopped<Value>(work: () => Promise<Value>): Promise<Value> {
    return this.#transitions.run(async () => {
      const wasRunning = this.#server !== undefined
      await this.#stop()
      try {
        return await work()
      } finally {
        await this.#readMajorVersion()
        if (wasRunning) await this.#start()
      }
    })
  }

  async unlessRunning<Value>(work: () => Promise<Value>): Promise<Value | undefined> {
    return this.#transitions.run(async () => (this.#server ? undefined : work()))
  }

  /** Updates the record to the version of the data, which an upgrade changes even if a crash interrupts it. */
  async #readMajorVersion(): Promise<void> {
    const major = (await readOwned(join(this.paths.data, 'PG_VERSION'), this.#record.account).catch(() => '')).trim()
    if (major === '' || major === this.#record.major) return
    await this.#changes.run(async () => {
      this.#record = { ...this.#record, major }
      await writeRecord(this.paths.folder, this.#record, this.#facts.isDurable).catch((error) =>
        this.#facts.log('record_not_written', { instance: this.name, error: String(error) }),
      )
    })
  }

  /** Refuses clients while `work` runs, and keeps the instance awake for it; the daemon's own sessions are not affected. */
  async whileClosed<Value>(reason: string, work: () => Promise<Value>): Promise<Value> {
    const release = this.#use()
    this.#closedReason = reason
    try {
      return await work()
    } finally {
      this.#closedReason = undefined
      release()
    }
  }

  /** Ends and refuses the sessions of clients while `work` replaces the data. `work` may start the server even if the instance is paused. */
  whileReplaced(endSessions: (name: string) => void, work: () => Promise<void>): Promise<void> {
    return this.whileClosed('The project is being restored', () => {
      endSessions(this.name)
      return this.whileStartable(work)
    })
  }

  stop(): Promise<void> {
    return this.#transitions.run(() => this.#stop())
  }

  /** Stops the server for good: nothing can start it again. */
  async shutDown(): Promise<void> {
    this.#isShutDown = true
    clearTimeout(this.#restart)
    await this.#transitions.run(() => this.#stop())
  }

  /** Whether the instance has been unused for as long as its record says. */
  isIdle(now: number): boolean {
    const { sleepAfterSeconds = this.#facts.sleepAfterSeconds } = this.#record
    return sleepAfterSeconds !== null && this.#uses === 0 && now - this.#usedAt >= sleepAfterSeconds * 1000
  }

  async sleepIfIdle(now: number): Promise<void> {
    if (!this.#server || !this.isIdle(now)) return
    await this.#transitions.run(async () => {
      if (this.isIdle(now)) await this.#stop()
    })
  }

  get #isClosed(): boolean {
    return this.#record.isPaused || this.#record.sealed !== undefined
  }

  /** Keeps the instance awake until the returned function is called. */
  #use(): () => void {
    this.#uses += 1
    return () => {
      this.#uses -= 1
      this.#usedAt = Date.now()
    }
  }

  async #start(): Promise<void> {
    if (this.#record.sealed) throw new InstanceUnavailable(MOVING)
    if (this.#record.isPaused && this.#pausedUses === 0) throw new InstanceUnavailable('The project is paused')
    if (this.#isShutDown) throw new InstanceUnavailable('The database has been stopped')
    if (this.#server) return
    this.#isStarting = true
    try {
      await makePrivate(this.paths.socket, this.#record.account)
      await this.#facts.events.starting(this)
      await this.writeConfiguration()
      const { account, primary } = this.#record
      const limit = primary ? { secondsMax: STANDBY_SECONDS_MAX } : {}
      const { server } = await this.#facts.starts.run(async () => {
        const server = startServer({ paths: this.paths, programs: this.programs, account, ...limit })
        await Promise.race([server, delay(SLOT_MS, undefined, { ref: false })])
        return { server }
      })
      const started = await server
      this.#setServer(started)
      // The checkpointer began to wait before the server took writes, and would ignore `archive_timeout` until its first checkpoint. The
      // signal wakes it.
      if (this.#record.isArchived) signal(started.pid, 'SIGHUP')
    } catch (error) {
      const problem = await diskProblem(this.paths.data).catch(() => undefined)
      const failure = [withoutPath(error), problem].filter(Boolean).join('; ')
      // Starts are retried: logging the same failure again would only fill the log.
      if (failure !== this.#failure) this.#facts.log('instance_not_started', { instance: this.name, error: failure })
      this.#failure = failure
      throw new InstanceUnavailable(failure)
    } finally {
      this.#isStarting = false
    }
  }

  #setServer(server: Server): void {
    const startedAt = Date.now()
    this.#server = server
    void this.#facts.limits.assign({ name: this.name, size: this.#record.size, pid: server.pid })
    this.#failure = undefined
    this.#usedAt = startedAt
    this.#facts.events.started(this)
    void server.ended.then(() => {
      if (this.#server !== server) return
      this.#server = undefined
      this.#endedAt = Date.now()
      this.#closeAdmin()
      this.#facts.log('instance_ended', { instance: this.name, after_ms: Date.now() - startedAt })
      if (Date.now() - startedAt > STABLE_MS) this.#backOffMs = BACK_OFF_MS.first
      this.#scheduleStart()
    })
  }

  /** Retries until the server runs, with back-off: a full disk or lack of memory may be temporary. */
  #scheduleStart(): void {
    if (this.#isShutDown || this.#isClosed) return
    clearTimeout(this.#restart)
    this.#restart = setTimeout(() => {
      this.wake().catch(() => this.#scheduleStart())
    }, this.#backOffMs)
    this.#backOffMs = Math.min(this.#backOffMs * 2, BACK_OFF_MS.max)
  }

  async #stop(): Promise<void> {
    clearTimeout(this.#restart)
    const server = this.#server
    this.#server = undefined
    this.#failure = undefined
    this.#closeAdmin()
    await server?.stop()
    this.#endedAt = Date.now()
  }

  #closeAdmin(): void {
    this.#admin?.then((admin) => admin.end()).catch(() => {})
    this.#admin = undefined
  }

  /** Reopens the database `postgres`: owners can close it to everyone, themselves included. */
  async #allowConnections(): Promise<void> {
    if (this.#record.primary) return
    await this.withAdmin('template1', (admin) =>
      admin.rows(`ALTER DATABASE postgres WITH ALLOW_CONNECTIONS true IS_TEMPLATE false;
        ALTER DATABASE postgres CONNECTION LIMIT -1`),
    ).catch((error) => this.#facts.log('database_not_opened', { instance: this.name, error: String(error) }))
  }

  #writeData(name: string, text: string): Promise<void> {
    // The files are written again at each start, so they need not survive a crash of the machine.
    return replaceFile(join(this.paths.data, name), text, this.#record.account, { isSynced: false })
  }
}

/** The message of an error; for an error of the operating system without the path, which only the operator may see. */
const withoutPath = (error: unknown): string =>
  error instanceof Error && 'syscall' in error ? (error.message.split(',')[0] ?? '') : errorMessage(error)

const isStatementError = (error: unknown): boolean =>
  error instanceof Error && 'severity' in error && error.severity === 'ERROR'
