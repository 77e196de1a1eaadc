import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { open, readFile } from 'node:fs/promises'
import { setTimeout as delay } from 'node:timers/promises'
import { freePort } from './ports.ts'
import { type Certificate, ensureCertificate } from './postgres/certificate.ts'
import { type DataFolder, dataFolder, initialise, readPostmaster } from './postgres/data-folder.ts'
import { type Programs, programsFor } from './postgres/programs.ts'
import { StartError } from './start-error.ts'

export interface PostgresOptions {
  /** The data folder; the superuser's name and password and the log lie beside it, as `<folder>.password` and `<folder>.log`. */
  folder: string
  /** 0 takes any free port. */
  port?: number
  /** False trades safety against a crash of the machine for speed: for tests. */
  durable?: boolean
}

export interface Postgres {
  /** The superuser's connection string. */
  url: string
  port: number
  certificate: Certificate
  stop(): Promise<void>
  /** Settles when Postgres has ended, whether we stopped it or not. */
  ended: Promise<void>
}

/** Starts Postgres on 127.0.0.1, with the data that `folder` already holds or with a new cluster. */
export async function startPostgres({ folder, port = 0, durable = true }: PostgresOptions): Promise<Postgres> {
  const data = await dataFolder(folder)
  const programs = await programsFor(data.owner)
  const { user, password } = await initialise({ data, programs, password: randomBytes(24).toString('hex'), durable })
  const certificate = await ensureCertificate(data)
  const chosen = await freePort(port, 'postgres')
  const server = await run({ data, programs, settings: settings(chosen, durable) })
  return { url: `postgresql://${user}:${password}@127.0.0.1:${chosen}/postgres`, port: chosen, certificate, ...server }
}

function settings(port: number, durable: boolean): Record<string, string | number> {
  return {
    port,
    listen_addresses: '127.0.0.1',
    unix_socket_directories: '',
    password_encryption: 'scram-sha-256',
    ssl: 'on',
    // Projects cannot take the reserved ones: the control plane's pool and its transactions live there in a flood.
    max_connections: 400,
    superuser_reserved_connections: 20,
    reserved_connections: 80,
    shared_buffers: '256MB',
    client_connection_check_interval: '1s',
    idle_in_transaction_session_timeout: '10min',
    temp_file_limit: '2GB',
    // Statements carry secrets, so no setting may bring one into the log.
    log_statement: 'none',
    log_min_error_statement: 'panic',
    log_min_messages: 'fatal',
    ...(durable ? {} : { fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off' }),
  }
}

interface Server {
  data: DataFolder
  programs: Programs
  settings: Record<string, string | number>
}

async function run({ data, programs, settings }: Server): Promise<Pick<Postgres, 'stop' | 'ended'>> {
  const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  const log = await open(data.log, 'a', 0o600)
  const { size: logStart } = await log.stat()
  // Its own process group: Ctrl-C reaches us alone, and we stop Postgres after those who still use it.
  const server = spawn(programs.postgres, ['-D', data.seenByServer, ...flags], {
    ...data.owner,
    cwd: data.folder,
    detached: true,
    stdio: ['ignore', log.fd, log.fd],
  })
  const ended = new Promise<void>((resolve) => server.once('close', () => resolve()))
  const kill = () => server.kill('SIGQUIT')
  process.once('exit', kill)
  void ended.then(() => process.off('exit', kill))
  try {
    await once(server, 'spawn')
    await ready(data, server)
  } catch (error) {
    await ended
    throw error instanceof StartError ? await withReason(error, data.log, logStart) : error
  } finally {
    await log.close()
  }
  return { stop: () => stop(server, ended), ended }
}

async function ready(data: DataFolder, server: ChildProcess): Promise<void> {
  while (server.exitCode === null && server.signalCode === null) {
    const postmaster = await readPostmaster(data.folder)
    if (postmaster?.pid === server.pid && postmaster?.ready) return
    await delay(10)
  }
  throw new StartError(`Postgres did not start on ${data.folder}`)
}

/** Adds what Postgres itself said last. */
async function withReason(error: StartError, logFile: string, logStart: number): Promise<StartError> {
  const text = (await readFile(logFile)).subarray(logStart).toString('utf8')
  const line = text.split('\n').findLast((each) => /(FATAL|PANIC):|postgres: /.test(each))
  const reason = line?.replace(/^.*?(FATAL|PANIC|postgres): +/, '') ?? 'it gave no reason'
  return new StartError(
    `${error.message}: ${reason} (log: ${logFile}). \`npm start -- --reset\` starts with empty data.`,
  )
}

const STOP_SECONDS_MAX = 30

async function stop(server: ChildProcess, ended: Promise<void>): Promise<void> {
  // Fast shutdown: open transactions are rolled back. If even that hangs, the next start recovers from the log.
  server.kill('SIGINT')
  const impatient = setTimeout(() => server.kill('SIGQUIT'), STOP_SECONDS_MAX * 1000)
  await ended
  clearTimeout(impatient)
}
