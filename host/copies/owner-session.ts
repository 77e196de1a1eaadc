import type { Socket } from 'node:net'
import pg from 'pg'
import { asUnconnected, limitReplies } from '../instances/admin.ts'

/** Options of the connection itself: the owner's settings for the database could keep the session from opening. */
const OPTIONS = [
  'local_preload_libraries=',
  'role=none',
  'search_path=pg_catalog',
  'default_transaction_read_only=off',
  'statement_timeout=30min',
  'transaction_timeout=0',
]
  .map((setting) => `-c ${setting}`)
  .join(' ')

/**
 * Opens a session as the owner, for statements that may call the owner's code: such code cannot return to a superuser role in it.
 * Ends the given socket, which is connected to the server.
 */
export const withOwner = <Value>(socket: Socket, work: (owner: pg.Client) => Promise<Value>): Promise<Value> =>
  withClient(
    { user: 'postgres', database: 'postgres', options: OPTIONS, stream: () => asUnconnected(socket) },
    (owner) => {
      limitReplies(owner)
      return work(owner)
    },
  )

/** Runs `work` in a session that ends with it. */
export async function withClient<Value>(
  config: pg.ClientConfig,
  work: (client: pg.Client) => Promise<Value>,
): Promise<Value> {
  const client = new pg.Client(config)
  // Ignored: after a lost connection the next query fails.
  client.on('error', () => {})
  try {
    await client.connect()
    return await work(client)
  } finally {
    await client.end().catch(() => {})
  }
}
