import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import { createSecureContext } from 'node:tls'
import { type Instance, type Instances, InstanceUnavailable } from '../instances/types.ts'
import type { HostLog } from '../log.ts'
import { type Ban, type BanLimits, Bans } from './bans.ts'
import type { Certificate } from './certificate.ts'
import { authenticate, checkPassword, type Login, recheckLogin, WrongPassword } from './login.ts'
import { AUTHENTICATION_OK, errorResponse, Fatal } from './messages.ts'
import { isLoopback, isWithin, normalizeAddress } from './networks.ts'
import { findRoute, type Route, unknownTenant } from './route.ts'
import { openServerSession, ServerRefusal, type ServerSession } from './server-session.ts'
import { type Session, Sessions } from './sessions.ts'
import { type Line, readStartup } from './startup.ts'
import { ConnectionLost, closeSoon, destroyOnError } from './streams.ts'
import { type Attempt, Unauthenticated, type UnauthenticatedLimits } from './unauthenticated.ts'

export interface GatewayLimits extends UnauthenticatedLimits, BanLimits {
  /** Connections of each instance that clients cannot take: three are the superuser's, the others for services. */
  reserved: number
  /** Holds back the answer to a wrong password or a banned address, so that a guesser takes no time from others. */
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
  /** `db.<name>.<domain>` as TLS server name leads to an instance. */
  domain?: string
  limits?: Partial<GatewayLimits>
  /** Ends sessions of an instance that nobody uses now. */
  makeRoom?(name: string): void
  now?: () => number
  log?: HostLog
}

/** The peer of a connection. */
export interface Caller {
  address: string
  /** Over TLS. */
  isSecure: boolean
  /** Presented the host key: may be any role, without a password and from anywhere. */
  isTrusted: boolean
}

/** A login whose password was right. */
export interface CheckedLogin {
  /** Rejects once the rules, the role or its password have changed so that it would be refused. */
  recheck(): Promise<void>
}

export interface Gateway {
  port: number
  /** Takes a client's TCP connection. */
  accept(client: Socket): void
  /** Takes a connection that came another way, such as through a WebSocket. */
  serve(stream: Duplex, caller: Caller): void
  /** For callers that log in without this protocol; rejects with `Fatal` in the words of a refused login. */
  authenticate(name: string, role: string, password: string, caller: Caller): Promise<CheckedLogin>
  sessions(name: string): number
  endSessions(name: string, filter?: (session: Session) => boolean): void
  /** Ends the sessions that the instance's rules no longer allow. */
  applyAccess(instance: Instance): void
  bans(name: string): Ban[]
  unban(name: string, addresses: readonly string[]): void
  stop(): Promise<void>
}

/** How a server of clients' connections opens its sockets. */
export const SOCKETS = { noDelay: true, keepAlive: true, keepAliveInitialDelay: 60_000 }

const ROOM_RETRIES = 20
const ROOM_RETRY_MS = 50

/** Wrong cancel keys count like wrong passwords, at no instance. */
const CANCEL = 'cancel requests'

export async function startGateway(options: GatewayOptions): Promise<Gateway> {
  const {
    port,
    host = '127.0.0.1',
    instances,
    tls,
    domain,
    makeRoom = () => {},
    now = Date.now,
    log = () => {},
  } = options
  const limits = { ...LIMITS, ...options.limits }
  const secureContext = createSecureContext({ key: tls.key, cert: tls.certificate, minVersion: 'TLSv1.2' })
  // From the key, so that the salts of unknown roles stay the same after a restart, as those of real ones do.
  const secret = createHash('sha256').update(`salts of unknown roles ${tls.key}`).digest('hex')
  const unauthenticated = new Unauthenticated(limits)
  const bans = new Bans(limits, now, (address, name) => log('address_banned', { address, instance: name }))
  const sessions = new Sessions()
  const open = new Set<Duplex>()
  let excess = 0
  const logFailure = (error: unknown) => log('gateway_failed', { error: nameOf(error) })

  function serve(stream: Duplex, caller: Caller) {
    if (stream.destroyed) return
    destroyOnError(stream)
    open.add(stream)
    const line: Line = { stream, isSecure: caller.isSecure }
    let attempt: Attempt | undefined
    // A refused client counts until it is gone.
    stream.once('close', () => {
      open.delete(stream)
      attempt?.end()
    })
    try {
      attempt = caller.isTrusted ? undefined : unauthenticated.begin(caller.address, () => stream.destroy())
      const address = normalizeAddress(caller.address)
      delayGuesses(receive(line, { ...caller, address }, attempt)).catch((error) => refuse(line, error, logFailure))
    } catch (error) {
      // Even a refusal takes a while: a flood gets none.
      if (excess >= limits.unauthenticated) return void stream.destroy()
      excess += 1
      stream.once('close', () => excess--)
      refuse(line, error, logFailure)
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

  async function receive(line: Line, caller: Caller, attempt: Attempt | undefined): Promise<void> {
    const startup = await readStartup(line, secureContext)
    if ('cancelKey' in startup) {
      await cancelStatement(startup.cancelKey, caller.address)
      return void line.stream.destroy()
    }
    const route = findRoute(startup.parameters, startup.servername, domain)
    const instance = instances.find(route.name)
    if (!instance) throw unknownTenant()
    if (startup.negotiation) line.stream.write(startup.negotiation)
    const { role, database } = route
    const session: Session = { ...caller, isSecure: line.isSecure, instance, role, database }
    if (!attempt) return openTrusted(line, session, route)

    const login = await logIn(session, () => authenticate(line.stream, { instance, role, secret, attempt }))
    const admitted = sessions.admit(session, line.stream, login.maxConnections - limits.reserved)
    attempt.end()
    sessions.connect(admitted, await openServerSession(instance, route, route.parameters), [])
  }

  function checkRules({ instance, address, isSecure }: Session) {
    if (instance.name === 'control' && !isLoopback(address)) throw unknownTenant()
    const until = bans.until(bansOf(instance), address)
    if (until) throw new Banned(address, until)
    const { ssl, networks } = instance.record.access
    if (ssl && !isSecure) throw new Fatal('28000', 'SSL connection is required')
    if (networks && !isWithin(address, networks)) throw notAllowed(address)
  }

  /** Checks the password and the rules. A login that succeeds resumes a paused instance. */
  async function logIn(session: Session, check: () => Promise<Login>): Promise<Login> {
    const { instance } = session
    const checkAll = async () => {
      const login = await counted(session, check())
      // The rules may have changed meanwhile.
      checkRules(session)
      checkNetworks(session, login)
      return login
    }
    checkRules(session)
    return instance.record.isPaused ? instance.resumeByLogin(checkAll) : checkAll()
  }

  async function counted<Value>({ instance, address }: Session, login: Promise<Value>): Promise<Value> {
    try {
      return await login
    } catch (error) {
      if (error instanceof WrongPassword) bans.recordFailure(bansOf(instance), address)
      throw error
    }
  }

  async function checkLogin(name: string, role: string, password: string, caller: Caller): Promise<CheckedLogin> {
    const instance = instances.find(name)
    if (!instance) throw unknownTenant()
    const address = normalizeAddress(caller.address)
    const session: Session = { ...caller, address, instance, role, database: '' }
    const recheck = async (login: Login) => {
      checkRules(session)
      checkNetworks(session, await recheckLogin(instance, role, login))
    }
    const attempt = unauthenticated.begin(address, () => {})
    try {
      const login = await delayGuesses(logIn(session, () => checkPassword({ instance, role, secret }, password)))
      return { recheck: () => recheck(login) }
    } finally {
      attempt.end()
    }
  }

  async function openTrusted(line: Line, session: Session, route: Route): Promise<void> {
    const admitted = sessions.admit(session, line.stream, Number.POSITIVE_INFINITY)
    sessions.connect(admitted, await openInRoom(session.instance, route), [AUTHENTICATION_OK])
  }

  /** Sessions of services that wait for their next use take no place from one that has work to do. */
  async function openInRoom(instance: Instance, route: Route, retries = ROOM_RETRIES): Promise<ServerSession> {
    try {
      return await openServerSession(instance, route, route.parameters)
    } catch (error) {
      if (retries === 0 || !(error instanceof ServerRefusal && error.isOutOfSessions)) throw error
      makeRoom(instance.name)
      await delay(ROOM_RETRY_MS)
      return openInRoom(instance, route, retries - 1)
    }
  }

  async function cancelStatement(key: Buffer, address: string) {
    if (bans.until(CANCEL, address)) return
    if (!(await sessions.cancel(key))) bans.recordFailure(CANCEL, address)
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
    applyAccess: ({ name, record: { access } }) =>
      sessions.end(name, ({ isTrusted, isSecure, address }) => {
        const isAllowed = (isSecure || !access.ssl) && (!access.networks || isWithin(address, access.networks))
        return !isTrusted && !isAllowed
      }),
    bans: (name) => bans.list(name),
    unban: (name, addresses) => bans.lift(name, addresses),
    async stop() {
      const closed = once(server, 'close')
      server.close()
      sessions.endAll()
      for (const stream of open) stream.destroy()
      await closed
    },
  }
}

class Banned extends Fatal {
  constructor(address: string, until: Date) {
    super('28000', `too many failed logins from ${address}: banned until ${until.toISOString()}`)
  }
}

/** A ban from a replica is one from its project. */
const bansOf = ({ name, record }: Instance): string => record.primary?.name ?? name

function checkNetworks({ address }: Session, { networks }: Login) {
  if (networks && !isWithin(address, networks)) throw notAllowed(address)
}

const notAllowed = (address: string) => new Fatal('28000', `Address not in tenant allow_list: ${address}`)

/** Tells the client why; what it need not know is only logged. */
function refuse({ stream }: Line, error: unknown, logFailure: (error: unknown) => void) {
  if (error instanceof ConnectionLost) return void stream.destroy()
  const response = responseFor(error)
  if (!response) logFailure(error)
  closeSoon(stream, response ?? errorResponse('57P03', 'the database system is not available'))
}

/** Undefined for an error of which the client is told nothing. */
function responseFor(error: unknown): Buffer | undefined {
  if (error instanceof ServerRefusal) return error.response
  if (error instanceof Fatal) return errorResponse(error.code, error.message)
  if (error instanceof InstanceUnavailable) return errorResponse('57P03', error.message)
  return undefined
}

/** Without the message, which may quote what clients sent. */
const nameOf = (error: unknown): string =>
  error instanceof Error ? ['code' in error ? error.code : '', error.name].join(' ').trim() : 'unknown'
