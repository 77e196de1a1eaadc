import { once } from 'node:events'
import { lchown, rm } from 'node:fs/promises'
import { connect, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { startupMessage } from '../gateway/messages.ts'
import { destroyOnError, pipeStreams, readBytes } from '../gateway/streams.ts'
import type { Instance } from '../instances/types.ts'
import { RELAY_PORT } from '../settings/configuration.ts'
import { REPLICATOR } from '../template/roles.ts'

/** The same limit as in Postgres. */
const STARTUP_BYTES_MAX = 10_000

/**
 * Lets a replica stream from its primary, whose socket its account cannot reach. Whatever its startup message requests, the
 * replica gets physical replication and nothing else. Returns a function that closes the relay.
 */
export async function openRelay(replica: Instance, primary: () => Instance | undefined): Promise<() => void> {
  const path = join(replica.paths.socket, `.s.PGSQL.${RELAY_PORT}`)
  const open = new Set<Socket>()
  const server = createServer((client) => {
    open.add(client)
    client.once('close', () => open.delete(client))
    destroyOnError(client)
    relay(client, replica.name, primary).catch(() => client.destroy())
  })
  await rm(path, { force: true })
  server.listen(path)
  await once(server, 'listening')
  const { account } = replica.record
  // The account owns the folder, and could put a link in the place of the socket.
  if (account) await lchown(path, account.uid, account.gid)
  return () => {
    server.close()
    for (const client of open) client.destroy()
  }
}

/** Passes a connection on to the primary. It does not count as use of the primary, so that an idle primary can sleep. */
async function relay(client: Socket, name: string, find: () => Instance | undefined): Promise<void> {
  const primary = find()
  const length = (await readBytes(client, 4)).readInt32BE(0)
  if (length < 8 || length > STARTUP_BYTES_MAX || primary?.state() !== 'running') return void client.destroy()
  await readBytes(client, length - 4)
  const server = connect(join(primary.paths.socket, '.s.PGSQL.5432'))
  destroyOnError(server)
  const parameters = { user: REPLICATOR, replication: 'true', application_name: name }
  server.write(startupMessage(Object.entries(parameters)))
  pipeStreams(client, server)
}
