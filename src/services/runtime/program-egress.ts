import { connect } from 'cloudflare:sockets'
import { WorkerEntrypoint } from 'cloudflare:workers'
import { type Config, readConfig } from '../../config.ts'
import { createCtx } from '../../ctx.ts'
import type { Bindings } from '../../platform/bindings.ts'
import { newTimedId } from '../../platform/db/id.ts'
import { isPublicAddress, parseAddress } from '../../platform/net/ip-addresses.ts'
import { projectAddress } from '../../platform/net/project-address.ts'
import { readCause } from './processes/call-chains.ts'
import { CHAIN_TOKEN_HEADER } from './processes/chain-header.ts'
import type { CallMetadata } from './processes/process-protocol.ts'
import { withCallContext } from './processes/process-requests.ts'

export interface OutboundProps {
  ref: string
  programId: string
  /** SUPABASE_DB_URL of the program. */
  databaseUrl: string | undefined
}
type Fetch = (
  request: Request,
  bindings: Bindings,
  execution: ExecutionContext,
  known: CallMetadata,
) => Response | Promise<Response>

/** SMTP ports are closed to prevent spam; programs send mail through HTTPS services. */
const REFUSED_PORTS = ['25', '587']
const LOOPBACK = ['127.0.0.1', '[::1]', 'localhost']

/**
 * Egress of programs: requests to the installation stay internal; all other destinations must have public addresses.
 */
export function createOutbound(fetchOwn: Fetch) {
  return class FunctionOutbound extends WorkerEntrypoint<Bindings, OutboundProps> {
    override async fetch(request: Request): Promise<Response> {
      const config = readConfig(this.env)
      const url = new URL(request.url)
      if (isOwn(url, config)) return this.#fetchOwn(request, config)
      const problem = addressProblem(url.hostname, portOf(url), this.env)
      if (problem) throw new Error(problem)
      const sent = withoutChainToken(request)
      try {
        return await (this.env.WEBHOOK_EGRESS ? this.env.WEBHOOK_EGRESS.fetch(sent) : fetch(sent))
      } catch (error) {
        // The runtime's own error would look like a platform failure to the program.
        throw new TypeError(`error sending request for url (${url.origin}${url.pathname}): ${reasonOf(error)}`)
      }
    }

    /** If programs run in processes of their own, their calls of the installation go through the API process. */
    async #fetchOwn(request: Request, config: Config): Promise<Response> {
      const { programId } = this.ctx.props
      const cause = readCause({ programId, secret: config.ENCRYPTION_KEY }, request.headers.get(CHAIN_TOKEN_HEADER))
      const own = asExternalCaller(request, config, this.ctx.props)
      if (!this.env.API) return fetchOwn(own, this.env, this.ctx, { cause })
      return this.env.API.fetch(own, withCallContext(this.env, { cause, id: newTimedId(new Date()) }))
    }

    override async connect(socket: Socket): Promise<void> {
      const { localAddress = '' } = await socket.opened
      const target = targetOf(localAddress)
      if (!target) throw new Error('invalid address: must be host:port')
      await pipeBoth(socket, await this.open(target))
    }

    private async open({ hostname, port }: Target): Promise<Socket> {
      if (isDatabase({ hostname, port }, this.ctx.props)) return this.#openDatabase({ hostname, port })
      const problem = addressProblem(hostname, String(port), this.env)
      if (problem) throw new Error(problem)
      return this.env.WEBHOOK_EGRESS ? this.env.WEBHOOK_EGRESS.connect({ hostname, port }) : connect({ hostname, port })
    }

    /** Names the project to the gateway of its database, before the program can send anything. */
    async #openDatabase(address: Target): Promise<Socket> {
      const { engine } = createCtx({ bindings: this.env, waitUntil: (work) => this.ctx.waitUntil(work) })
      const request = await engine.programRequest?.(this.ctx.props.ref)
      const socket = connect(address)
      if (request === undefined) return socket
      const writer = socket.writable.getWriter()
      await writer.write(request)
      writer.releaseLock()
      return socket
    }
  }
}

/** Runtime errors whose text is of no use to programs. */
const INTERNAL = /^internal error/

function reasonOf(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error)
  return INTERNAL.test(message) ? 'the host cannot be reached' : message
}

function isOwn({ origin, hostname }: URL, { BASE_URL, PROJECT_DOMAIN }: Config): boolean {
  return origin === new URL(BASE_URL).origin || (!!PROJECT_DOMAIN && hostname.endsWith(`.${PROJECT_DOMAIN}`))
}

/** Sets the client address of a program's request to that of its project, and removes the chain token. */
function asExternalCaller(request: Request, { CLIENT_ADDRESS_HEADER }: Config, { ref }: OutboundProps): Request {
  const headers = new Headers(request.headers)
  headers.delete(CHAIN_TOKEN_HEADER)
  if (CLIENT_ADDRESS_HEADER) headers.set(CLIENT_ADDRESS_HEADER, projectAddress(ref))
  return new Request(request, { headers })
}

function withoutChainToken(request: Request): Request {
  if (!request.headers.has(CHAIN_TOKEN_HEADER)) return request
  const headers = new Headers(request.headers)
  headers.delete(CHAIN_TOKEN_HEADER)
  return new Request(request, { headers })
}

/**
 * Checks ports, addresses and well-known names without resolving; the egress proxy checks the addresses that names
 * resolve to.
 */
function addressProblem(hostname: string, port: string, bindings: Bindings): string | undefined {
  if (REFUSED_PORTS.includes(port)) return `port ${port} not allowed: send mail through an HTTPS service`
  const config = readConfig(bindings)
  const host = hostname.replace(/\.+$/, '')
  // The port is checked for every name, because any name may resolve to this machine.
  if (config.WEBHOOK_LOOPBACK && ownPorts(config, bindings).includes(port))
    return 'address not allowed: it belongs to the installation'
  if (LOOPBACK.includes(host) && config.WEBHOOK_LOOPBACK) return undefined
  const address = parseAddress(host.replace(/^\[|\]$/g, ''))
  const isRefused = address
    ? !isPublicAddress(host.replace(/^\[|\]$/g, ''))
    : host === 'localhost' || host.endsWith('.localhost')
  return isRefused ? 'address not allowed: must be public' : undefined
}

/** Ports on this machine of the installation and its services: closed to programs even in development. */
function ownPorts(config: Config, { CLOSED_PORTS: closed = '' }: Bindings): string[] {
  const urls = [config.BASE_URL, config.DATABASE_URL, config.NEON_PROXY, config.ENGINE_NEON_PROXY, config.S3_ENDPOINT]
  if (config.ENGINE === 'host') urls.push(config.HOST_URL)
  const listened = urls.flatMap((address) => {
    const url = address ? new URL(address) : undefined
    return url && isThisMachine(url.hostname) ? [portOf(url)] : []
  })
  return [...listened, ...closed.split(',')]
}

const isThisMachine = (host: string): boolean =>
  !host.includes('.') || host.endsWith('.localhost') || host.startsWith('127.') || host === '0.0.0.0'

const DEFAULT_PORTS: Record<string, string> = { 'http:': '80', 'https:': '443' }
const portOf = ({ port, protocol }: URL): string => port || (DEFAULT_PORTS[protocol] ?? '5432')

interface Target {
  hostname: string
  port: number
}

function targetOf(address: string): Target | undefined {
  const [, hostname, port] = /^(.+):(\d+)$/.exec(address) ?? []
  return hostname === undefined ? undefined : { hostname, port: Number(port) }
}

/** The database may have a private address: its gateway requires a password from every client. */
function isDatabase({ hostname, port }: Target, { databaseUrl }: OutboundProps): boolean {
  if (databaseUrl === undefined) return false
  const url = new URL(databaseUrl)
  return hostname === url.hostname && String(port) === portOf(url)
}

async function pipeBoth(near: Socket, far: Socket): Promise<void> {
  await far.opened
  await Promise.all([near.readable.pipeTo(far.writable), far.readable.pipeTo(near.writable)])
}
