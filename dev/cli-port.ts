import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { SOCKETS } from '../host/gateway/gateway.ts'
import { CLI_PORT, LOOPBACK } from './ports.ts'
import { errorCode } from './start-error.ts'

/** 127.0.0.1 in a form that the CLI accepts as a name: it refuses addresses of four numbers. */
export const CLI_HOST = '127.1'

/** Serves clients at the CLI's port too; undefined if another program uses it. */
export const listenForCli = (accept: (client: Socket) => void) =>
  listen(accept, CLI_PORT, LOOPBACK).catch((error) => {
    if (['EADDRINUSE', 'EACCES'].includes(errorCode(error) ?? '')) return undefined
    throw error
  })

/** Serves clients of the gateway at another address. */
export async function listen(accept: (client: Socket) => void, port: number, address: string) {
  const server = createServer(SOCKETS, accept).listen(port, address)
  await once(server, 'listening')
  // Only the listener is closed here; the host ends the connections.
  return { stop: async () => void server.close() }
}
