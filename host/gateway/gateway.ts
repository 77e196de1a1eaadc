import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import { createSecureContext } from 'node:tls'
import { normalizeAddress } from '../../src/platform/net/ip-addresses.ts'
import { projectAddress } from '../../src/platform/net/project-address.ts'
import { type Instance, type Instances, InstanceUnavailable } from '../instances/types.ts'
import type { HostKey } from '../key.ts'
import type { HostLog } from '../log.ts'
import { type Ban, type BanLimits, Bans } from './bans.ts'
import type { Certificate } from './certificate.ts'
import { authenticate, checkPassword, type Guess, type Login, recheckLogin, WrongPassword } from './login.ts'
import { AUTHENTICATION_OK, errorResponse, Fatal } from './messages.ts'
import { isLoopback, isWithin } from './networks.ts'
import { findRoute, type Route, unknownTenant } from './route.ts'
import { openServerSession, ServerRefusal, type ServerSession } from './server-session.ts'
import { isTemporary, type Session, Sessions } from './sessions.ts'
import { type ClientConnection, readStartup } from './startup.ts'
import { ConnectionLost, closeSoon, destroyOnError } from './streams.ts'
import { type Attempt, Unauthenticated, type UnauthenticatedLimits } from './unauthenticated.ts'

export interface GatewayLimits extends UnauthenticatedLimits, BanLimits {
  /** Connections of each instance kept from clients: three for the superuser, the others for services. */
  reserved: number
  /** Delay of the answer to a wrong password or a banned address, so that guessing cannot keep the gateway busy. */
  guessDelayMs: number
}

const LIMITS: GatewayLimits = {
  unauthenticated: 1000,
  unauthenticatedPerAddress: 500,
  authenticationMs: 5000,
  failures: 10,
  failuresMs: 5 * 60_000,
  banMs: 30 * 60_000,
  reserved: 13,
  guessDelayMs: 500,
}

export interface GatewayOptions {
  /** 0 takes any free port. */
  port: number
  host?: string
  instances: Instances
  tls: Certificate
  /** Checks the tokens of programs. */
  key: HostKey
  /** Clients may name an instance by the TLS server name `db.<name>.<domain>`. */
  domain?: string
  limits?: Partial<GatewayLimits>
  /** Ends idle sessions of the instance's services, to free connection slots. */
  endIdleSessions?(name: string): void
  now?: () => number
  log?: HostLog
}

/** The peer of a connection. */
export interface Caller {
  address: string
  /** The address that limits and bans count instead, for callers that share `address`. */
  countedAddress?: string
  /** Whether the connection uses TLS. */
  isSecure: boolean
  /** Whether the caller presented the host key: it may log in as any role, without a password and from any address. */
  isTrusted: boolean
  /** The only instance that the caller may connect to, with its replicas; undefined for any. */
  onlyInstance?: string
}

/** A login with a correct password. */
export interface CheckedLogin {
  /** Rejects if changed rules, or a changed role or password, would refuse the login now. */
  recheck(): Promise<void>
}

export interface Gateway {
  port: number
  /** Serves a client's TCP connection. */
  accept(client: Socket): void
  /** Serves a connection of another transport, such as a WebSocket. */
  serve(stream: Duplex, caller: Caller): void
  /** Checks a login outside the Postgres protocol; rejects with the `Fatal` that a client of the protocol would get. */
  authenticate(name: string, role: string, password: string, caller: Caller): Promise<CheckedLogin>
  sessions(name: string): number
  endSessions(name: string, filter?: (session: Session) => boolean): void
  /** Ends the sessions that the instance's rules no longer allow. */
  applyAccess(instance: Instance): void
  bans(name: string): Ban[]
  unban(name: string, addresses: readonly string[]): void
  stop(): Promise<void>
}

/** Socket options of every server that accepts Postgres clients. */
export const SOCKETS = { noDelay: true, keepAlive: true, keepAliveInitialDelay: 60_000 }

const OPEN_RETRIES = 20
const OPEN_RETRY_MS = 50

/** The name under which wrong cancel keys are counted: like wrong passwords, but at no instance. */
const CANCEL_REQUESTS = 'cancel requests'

export async function startGateway(options: GatewayOptions): Promise<Gateway> {
  const {
    port,
    host = '127.0.0.1',
    instances,
    tls,
    key,
    domain,
    endIdleSessions = () => {},
    now = Date.now,
    log = () => {},
  } = options
  const limits = { ...LIMITS, ...options.limits }
  const secureContext = createSecureContext({ key: tls.key, cert: tls.certificate, minVersion: 'TLSv1.2' })
  // Derived from the TLS key: the salts of unknown roles must stay the same after a restart, as those of real roles do.
  const secret = createHash('sha256').update(`salts of unknown roles ${tls.key}`).digest('hex')
  const unauthenticated = new Unauthenticated(limits)
  const bans = new Bans(limits, now, (address, name) => log('address_banned', { address, instance: name }))
  const sessions = new Sessions()
  const openStreams = new Set<Duplex>()
  let excessRefusals = 0
  const logFailure = (error: unknown) => log('gateway_failed', { error: errorName(error) })

  function serve(stream: Duplex, caller: Caller) {
    if (stream.destroyed) return
    destroyOnError(stream)
    openStreams.add(stream)
    const connection: ClientConnection = { stream, isSecure: caller.isSecure }
    let attempt: Attempt | undefined
    // A refused client counts as unauthenticated until its connection is closed.
    stream.once('close', () => {
      openStreams.delete(stream)
      attempt?.end()
    })
    try {
      attempt = caller.isTrusted ? undefined : unauthenticated.begin(caller.address, () => stream.destroy())
      const address = normalizeAddress(caller.address)
      delayGuesses(receive(connection, { ...caller, address }, attempt)).catch((error) =>
        refuse(connection, error, logFailure),
      )
    } catch (error) {
      // Sending a refusal takes resources too, so past this limit connections are closed without one.
      if (excessRefusals >= limits.unauthenticated) return void stream.destroy()
      excessRefusals += 1
      stream.once('close', () => excessRefusals--)
      refuse(connection, error, logFailure)
    }
  }

  async function delayGuesses<Value>(work: Promise<Value>): Promise<Value> {
    try {
      return await work
    } catch (error) {
      if (error instanceof WrongPassword || error instanceof Banned) await delay(limits.guessDelayMs)
      throw error
    }
  }

  async function receive(connection: ClientConnection, caller: Caller, attempt: Attempt | undefined): Promise<void> {
    const startup = await readStartup(connection, secureContext)
    if ('program' in startup) {
      const program = programCaller(startup.program, caller)
      attempt?.countAs(program.countedAddress)
      return receive(connection, program, attempt)
    }
    if ('cancelKey' in startup) {
      await cancelStatement(startup.cancelKey, countedAddressOf(caller))
      // libpq reports a TLS connection that ends without a `close_notify` as a failed cancellation.
      return closeSoon(connection.stream)
    }
    const route = findRoute(startup.parameters, startup.servername, domain)
    const instance = instances.find(route.name)
    if (!instance || !mayReach(caller, instance)) throw unknownTenant()
    if (startup.negotiation) connection.stream.write(startup.negotiation)
    const { role, database } = route
    const session: Session = { ...caller, isSecure: connection.isSecure, instance, role, database }
    if (!attempt) return openTrusted(connection, session, route)

    const login = await logIn(session, (guess) =>
      authenticate(connection.stream, { instance, role, secret, attempt, guess }),
    )
    const admitted = sessions.admit(session, connection.stream, login.maxConnections - limits.reserved)
    // After the session is admitted: a login that ends from now on ends the session too.
    await recheckAtPrimary(session, login)
    attempt.end()
    sessions.connect(admitted, await openServerSession(instance, route, route.parameters), [])
  }

  /** Programs may all have one address, so each project's count under an address of its own. */
  function programCaller({ instance, token }: { instance: string; token: string }, caller: Caller) {
    // It restricts a connection once, and must not widen what a WebSocket of the control plane may reach.
    if (caller.isTrusted || caller.onlyInstance !== undefined)
      throw new Fatal('08P01', 'this connection cannot name the project of a program')
    if (!key.acceptsToken(token, 'program', instance)) throw new Fatal('28000', 'invalid or expired token of a program')
    return { ...caller, onlyInstance: instance, countedAddress: projectAddress(instance) }
  }

  function checkRules(session: Session) {
    const { instance, address, isSecure } = session
    if (instance.name === 'control' && !isLoopback(address)) throw unknownTenant()
    const counted = countedAddressOf(session)
    const until = bans.banEnd(primaryNameOf(instance), counted)
    if (until) throw new Banned(counted, until)
    const { ssl, networks } = rulesOf(instance)
    if (ssl && !isSecure) throw new Fatal('28000', 'SSL connection is required')
    if (networks && !isWithin(address, networks)) throw notAllowed(address)
  }

  /** Reads the rules of a replica from its primary, so that a change holds at once. */
  function rulesOf(instance: Instance) {
    const found = instances.find(primaryNameOf(instance))
    if (!found) throw unknownTenant()
    return found.record.access
  }

  /** Checks the password and the rules. A login that succeeds resumes a paused instance, unless it is a temporary one. */
  async function logIn(session: Session, check: (guess: Guess) => Promise<Login>): Promise<Login> {
    const { instance } = session
    const checkAll = async () => {
      const login = await check((work) => guess(session, work)).catch((error) => {
        // Each login starts the server of a paused instance, even if the client leaves before it sends its password.
        if (instance.record.isPaused && isUnfinished(error)) recordFailure(session)
        throw error
      })
      // The rules may have changed during the login.
      checkRules(session)
      checkNetworks(session, login)
      return login
    }
    checkRules(session)
    if (!instance.record.isPaused) return checkAll()
    // A temporary login that was withdrawn during the pause is dropped only after it, so its password may still be valid.
    if (isTemporary(session)) throw new InstanceUnavailable('The project is paused')
    return instance.resumeByLogin(checkAll)
  }

  const recordFailure = (session: Session) =>
    bans.recordFailure(primaryNameOf(session.instance), countedAddressOf(session))

  /** Checks the rules right before each password: an address may open many connections before its first failure. */
  async function guess<Value>(session: Session, check: () => Value | Promise<Value>): Promise<Value> {
    checkRules(session)
    try {
      return await check()
    } catch (error) {
      // Programs know the password, and use the previous one until a change reaches them: a ban would outlast that by half an hour.
      const isProgram = session.countedAddress !== undefined
      if (error instanceof WrongPassword && !isProgram) recordFailure(session)
      throw error
    }
  }

  /** Throws if the primary of a replica would refuse the login: the replica may lag behind. */
  async function recheckAtPrimary({ instance, role }: Session, login: Login): Promise<void> {
    const { primary: followed } = instance.record
    const primary = followed && instances.find(followed.name)
    // Replicas serve reads while their primary does not run.
    if (primary?.state() === 'running') await recheckLogin(primary, role, login)
  }

  async function checkLogin(name: string, role: string, password: string, caller: Caller): Promise<CheckedLogin> {
    const instance = instances.find(name)
    if (!instance) throw unknownTenant()
    const address = normalizeAddress(caller.address)
    const session: Session = { ...caller, address, instance, role, database: '' }
    const recheck = async (login: Login) => {
      checkRules(session)
      checkNetworks(session, await recheckLogin(instance, role, login))
      await recheckAtPrimary(session, login)
    }
    const attempt = unauthenticated.begin(address, () => {})
    const check = (guess: Guess) =>
      attempt.waitFor(name, () => checkPassword({ instance, role, secret, guess }, password))
    try {
      const login = await delayGuesses(logIn(session, check))
      return { recheck: () => recheck(login) }
    } finally {
      attempt.end()
    }
  }

  async function openTrusted(connection: ClientConnection, session: Session, route: Route): Promise<void> {
    const admitted = sessions.admit(session, connection.stream, Number.POSITIVE_INFINITY)
    sessions.connect(admitted, await openWithRetries(session.instance, route), [AUTHENTICATION_OK])
  }

  /** Opens a session; while the server has no free slot, ends idle sessions of services and tries again. */
  async function openWithRetries(instance: Instance, route: Route, retries = OPEN_RETRIES): Promise<ServerSession> {
    try {
      return await openServerSession(instance, route, route.parameters)
    } catch (error) {
      if (retries === 0 || !(error instanceof ServerRefusal && error.isOutOfSessions)) throw error
      endIdleSessions(instance.name)
      await delay(OPEN_RETRY_MS)
      return openWithRetries(instance, route, retries - 1)
    }
  }

  async function cancelStatement(key: Buffer, address: string) {
    if (bans.banEnd(CANCEL_REQUESTS, address)) return
    if (!(await sessions.cancel(key))) bans.recordFailure(CANCEL_REQUESTS, address)
  }

  const accept = (socket: Socket) =>
    serve(socket, { address: socket.remoteAddress ?? '', isSecure: false, isTrusted: false })
  const server = createServer(SOCKETS, accept)
  server.listen(port, host)
  await once(server, 'listening')
  server.on('error', logFailure)
  return {
    port: (server.address() as AddressInfo).port,
    accept,
    serve,
    authenticate: checkLogin,
    sessions: (name) => sessions.count(name),
    endSessions: (name, filter) => sessions.end(name, filter),
    applyAccess(instance) {
      const { ssl, networks } = rulesOf(instance)
      sessions.end(instance.name, ({ isTrusted, isSecure, address }) => {
        const isAllowed = (isSecure || !ssl) && (!networks || isWithin(address, networks))
        return !isTrusted && !isAllowed
      })
    },
    bans: (name) => bans.list(name),
    unban: (name, addresses) => bans.lift(name, addresses),
    async stop() {
      const closed = once(server, 'close')
      server.close()
      sessions.endAll()
      for (const stream of openStreams) stream.destroy()
      await closed
    },
  }
}

class Banned extends Fatal {
  constructor(address: string, until: Date) {
    super('28000', `too many failed logins from ${address}: banned until ${until.toISOString()}`)
  }
}

/** A replica shares the access rules and the bans of its primary. */
const primaryNameOf = ({ name, record }: Instance): string => record.primary?.name ?? name

const countedAddressOf = ({ address, countedAddress = address }: Pick<Caller, 'address' | 'countedAddress'>) =>
  countedAddress

const mayReach = ({ onlyInstance }: Caller, instance: Instance): boolean =>
  onlyInstance === undefined || onlyInstance === instance.name || onlyInstance === primaryNameOf(instance)

function checkNetworks({ address }: Session, { networks }: Login) {
  if (networks && !isWithin(address, networks)) throw notAllowed(address)
}

/** Whether the client left before it sent its password, or broke the protocol. */
const isUnfinished = (error: unknown) =>
  error instanceof ConnectionLost || (error instanceof Fatal && error.code === '08P01')

const notAllowed = (address: string) => new Fatal('28000', `Address not in tenant allow_list: ${address}`)

/** Sends the client the reason and closes its connection; unexpected errors are only logged. */
function refuse({ stream }: ClientConnection, error: unknown, logFailure: (error: unknown) => void) {
  if (error instanceof ConnectionLost) return void stream.destroy()
  const response = responseFor(error)
  if (!response) logFailure(error)
  closeSoon(stream, response ?? errorResponse('57P03', 'the database system is not available'))
}

/** Undefined for an unexpected error, whose text the client must not see. */
function responseFor(error: unknown): Buffer | undefined {
  if (error instanceof ServerRefusal) return error.response
  if (error instanceof Fatal) return errorResponse(error.code, error.message)
  if (error instanceof InstanceUnavailable) return errorResponse('57P03', error.message)
  return undefined
}

/** The code and class of an error without its message, which may quote what clients sent. */
const errorName = (error: unknown): string =>
  error instanceof Error ? ['code' in error ? error.code : '', error.name].join(' ').trim() : 'unknown'
