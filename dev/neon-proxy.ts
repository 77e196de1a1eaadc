import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { WebSocketServer } from 'ws'
import { openConnections } from './neon-proxy/connections.ts'
import { answerSql } from './neon-proxy/http.ts'
import { openTunnels } from './neon-proxy/websocket.ts'
import { portError } from './ports.ts'

export interface PostgresAddress {
  host: string
  port: number
}

export interface NeonProxyOptions {
  postgres: PostgresAddress
  port?: number
  host?: string
  /** Roles whose connections are kept between requests: their statements must leave no session state behind. */
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

  const connections = openConnections({ postgres, pooledRoles, connectionsMax, connectTimeoutMs })
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

const LOOPBACK = new Set(['127.0.0.1', 'localhost', '::1', '[::1]'])

export function isSameAddress(postgres: PostgresAddress, host: string, port: number): boolean {
  const sameHost = host === postgres.host || (LOOPBACK.has(host) && LOOPBACK.has(postgres.host))
  return sameHost && port === postgres.port
}
