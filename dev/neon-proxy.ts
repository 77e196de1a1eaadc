import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { WebSocketServer } from 'ws'
import { openConnections, type Pooling } from './neon-proxy/connections.ts'
import { answerSql } from './neon-proxy/http.ts'
import { openTunnels } from './neon-proxy/websocket.ts'
import { portError } from './ports.ts'
import { StartError } from './start-error.ts'

export interface PostgresAddress {
  host: string
  port: number
}

export interface NeonProxyOptions {
  postgres: PostgresAddress
  port?: number
  host?: string
  /**
   * Roles whose connections are kept between requests. One named in full must leave no session state behind; what one does
   * that a pattern names, with `*` for any letters, is taken back after each request.
   */
  pooledRoles?: readonly string[]
  connectionsMax?: number
  tunnelsMax?: number
  bodyBytesMax?: number
  resultBytesMax?: number
  connectTimeoutMs?: number
}

const MIB = 1024 * 1024

/** Serves the Neon driver's HTTP and WebSocket protocols in front of one Postgres, and of no other address. */
export async function startNeonProxy(options: NeonProxyOptions): Promise<{ url: string; stop(): Promise<void> }> {
  const { postgres, port = 0, host = '127.0.0.1', pooledRoles = [], connectionsMax = 20, tunnelsMax = 500 } = options
  const { bodyBytesMax = 16 * MIB, resultBytesMax = 64 * MIB, connectTimeoutMs = 10_000 } = options

  const poolingOf = poolingBy(pooledRoles)
  const connections = openConnections({ postgres, poolingOf, connectionsMax, connectTimeoutMs })
  const sql = answerSql({ connections, bodyBytesMax, resultBytesMax })
  // A client that keeps connections alive must never meet one that we are just closing.
  const server = createServer({ keepAliveTimeout: 600_000 }, (req, res) => {
    if (req.url === '/sql' && req.method === 'POST') void sql(req, res)
    else res.writeHead(404).end()
  })
  const webSockets = new WebSocketServer({ noServer: true, perMessageDeflate: false, maxPayload: bodyBytesMax })
  const tunnels = openTunnels({ webSockets, postgres, tunnelsMax, connectTimeoutMs })
  server.on('upgrade', tunnels.upgrade)

  server.listen(port, host)
  try {
    await once(server, 'listening')
  } catch (error) {
    throw portError(error, port, 'proxy')
  }
  const { port: boundPort } = server.address() as AddressInfo

  async function stop() {
    const closed = once(server, 'close')
    server.close()
    tunnels.close()
    server.closeAllConnections()
    await connections.close()
    await closed
  }
  return { url: `http://${host}:${boundPort}`, stop }
}

function poolingBy(patterns: readonly string[]): (role: string) => Pooling | undefined {
  const wrong = patterns.find((pattern) => !/^[\w*]+$/.test(pattern))
  if (wrong) throw new StartError(`POOLED_ROLES holds ${wrong}: a role's name has letters, digits and _.`)
  const exact = patterns.map((pattern) => new RegExp(`^${pattern.replaceAll('*', '[a-z]+')}$`))
  return (role) =>
    patterns.includes(role) ? 'trusted' : exact.some((pattern) => pattern.test(role)) ? 'reset' : undefined
}

const LOOPBACK = new Set(['127.0.0.1', 'localhost', '::1', '[::1]'])

export function isSameAddress(postgres: PostgresAddress, host: string, port: number): boolean {
  const sameHost = host === postgres.host || (LOOPBACK.has(host) && LOOPBACK.has(postgres.host))
  return sameHost && port === postgres.port
}
