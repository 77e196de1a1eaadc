import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { SOCKETS } from '../host/gateway/gateway.ts'
import { CLI_PORT } from './ports.ts'
import { errorCode } from './start-error.ts'

/** 127.0.0.1 in a form that the CLI accepts as a name: it refuses addresses of four numbers. */
export const CLI_HOST = '127.1'

/** Serves clients at the CLI's port too; undefined if another program uses it. */
export async function listenForCli(accept: (client: Socket) => void): Promise<{ stop(): Promise<void> } | undefined> {
  const server = createServer(SOCKETS, accept).listen(CLI_PORT, '127.0.0.1')
  try {
    await once(server, 'listening')
  } catch (error) {
    if (['EADDRINUSE', 'EACCES'].includes(errorCode(error) ?? '')) return undefined
    throw error
  }
  // Only the listener is closed here; the host ends the connections.
  return { stop: async () => void server.close() }
}
