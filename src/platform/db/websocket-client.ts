import { Client, type ClientConfig } from '@neondatabase/serverless'
import { hostTokenQuery } from '../secrets/host-token.ts'
import { withTimeout } from '../timeout.ts'
import type { DatabaseAddress } from './control-database.ts'

const CONNECT_TIMEOUT_MS = 10_000

/** Creates a client for one session over a WebSocket, through the proxy if there is one. Connect it with `connectClient`. */
export function createClient(
  config: string | ClientConfig,
  { proxy, key }: Pick<DatabaseAddress, 'proxy' | 'key'>,
): Client {
  const client = new Client(config)
  // Without a listener a lost connection would be an uncaught error. The running query rejects by itself.
  client.on('error', () => {})
  if (proxy === undefined) return client
  const { host, protocol } = new URL(proxy)
  const token = key === undefined ? '' : `&${hostTokenQuery(key, client.user ?? '')}`
  Object.assign(client.neonConfig, {
    wsProxy: (address: string, port: number) => `${host}/v2?address=${address}:${port}${token}`,
    useSecureWebSocket: protocol === 'https:',
    pipelineTLS: false,
    pipelineConnect: false,
  })
  return client
}

/** Connects. After a failure nothing has been done, so the caller may retry. */
export async function connectClient(client: Client): Promise<void> {
  const timedOut = () => new Error(`The database did not answer in ${CONNECT_TIMEOUT_MS} ms`)
  try {
    await withTimeout(CONNECT_TIMEOUT_MS, client.connect(), timedOut)
  } catch (error) {
    dropClient(client)
    throw error
  }
}

/** Closes the socket at once, even while it connects: otherwise the database would keep the session. */
export function dropClient(client: Client): void {
  // workerd refuses a coalesced Terminate message, which would be sent after the socket is closed.
  client.neonConfig.coalesceWrites = false
  const { connection } = client as unknown as { connection: { stream: { destroy(): void } } }
  connection.stream.destroy()
}
