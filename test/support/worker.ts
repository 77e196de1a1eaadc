import { fetch as fetchFromNode, type Request, type Response } from 'miniflare'
import { freePort } from '../../dev/ports.ts'
import { builderWorker, runWorker } from '../../dev/worker.ts'

export interface Bindings {
  vars: Record<string, string>
  secrets: Record<string, string>
}

export interface Server {
  origin: string
  /** Runs the work of a minute of the cron, at the time `at` for cron expressions of workers. */
  tick(at?: Date): Promise<unknown>
  stop(): Promise<void>
}

interface Options {
  bundle: string
  /** The folder of the Durable Objects. */
  folder: string
  onLine?(line: string): void
  /** A builder in a process of its own. */
  builder?: { address: string; key: string }
  /** Hosts that are reached at these origins, whatever their names resolve to. */
  servers?: ReadonlyMap<string, string>
}

const BUILDER = 'builder'
const OUTBOUND = 'outbound'

/** The Worker's egress: straight to this machine, and by Node to hosts with names. */
const outbound = (servers: ReadonlyMap<string, string>) => ({
  name: OUTBOUND,
  modules: [
    {
      type: 'ESModule',
      path: 'outbound.js',
      contents: `export default {
        fetch: (request, { LOCAL, NAMED }) => (new URL(request.url).hostname === '127.0.0.1' ? LOCAL : NAMED).fetch(request)
      }`,
    },
  ],
  compatibilityDate: '2026-01-01',
  serviceBindings: {
    LOCAL: { network: { allow: ['public', 'private'] } },
    NAMED: (request: Request) => fetchAt(servers, request),
  },
})

/**
 * Serves the Worker as `npm start` does, except for its clock, which runs on request, and its builder, which by
 * default has no process of its own.
 */
export async function serveWorker(
  { vars, secrets }: Bindings,
  { bundle, folder, onLine = () => {}, builder: process, servers = new Map() }: Options,
): Promise<Server> {
  const port = await freePort(0, 'api')
  const bindings = { ...vars, ...secrets }
  const builder = { ...(await builderWorker({ bundle, bindings })), name: BUILDER }
  const { tick, stop } = await runWorker(
    { bundle, port, bindings, folder },
    {
      serviceBindings: { BUILDER: process ? { external: { address: process.address, http: {} } } : BUILDER },
      ...(process && { bindings: { BUILDER_KEY: process.key } }),
      onLine,
      worker: { outboundService: OUTBOUND },
      workers: [builder, outbound(servers)],
    },
  )
  return { origin: `http://127.0.0.1:${port}`, tick, stop }
}

function fetchAt(servers: ReadonlyMap<string, string>, request: Request): Promise<Response> {
  const { hostname, pathname, search } = new URL(request.url)
  const origin = servers.get(hostname)
  return origin ? fetchFromNode(new URL(pathname + search, origin), request) : fetchFromNode(request)
}
