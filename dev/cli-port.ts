import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { SOCKETS } from '../host/gateway/gateway.ts'
import { errorCode } from './start-error.ts'

/** The only port at which the `supabase` command line looks for the database of a linked project. */
export const CLI_PORT = 5432
/** 127.0.0.1 in a form that the command line takes for a name: it refuses addresses of four numbers. */
export const CLI_HOST = '127.1'

/** Serves clients at the command line's port too; undefined if another program of this machine has it. */
export async function listenForCli(accept: (client: Socket) => void): Promise<{ stop(): Promise<void> } | undefined> {
  const server = createServer(SOCKETS, accept).listen(CLI_PORT, '127.0.0.1')
  try {
    await once(server, 'listening')
  } catch (error) {
    if (['EADDRINUSE', 'EACCES'].includes(errorCode(error) ?? '')) return undefined
    throw error
  }
  // The host ends the connections.
  return { stop: async () => void server.close() }
}
