import type { Socket } from 'node:net'
import pg from 'pg'
import { asUnconnected } from '../instances/admin.ts'

/** From its first moment: settings of the owner's for the database could keep the session from being opened. */
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
 * A session of the owner's, for all that may call code of theirs: there is no superuser in it to go back to. Ends the socket,
 * which is connected to the server.
 */
export async function withOwner<Value>(socket: Socket, work: (owner: pg.Client) => Promise<Value>): Promise<Value> {
  const stream = () => asUnconnected(socket)
  const client = new pg.Client({ user: 'postgres', database: 'postgres', options: OPTIONS, stream })
  client.on('error', () => {})
  try {
    await client.connect()
    return await work(client)
  } finally {
    await client.end().catch(() => {})
  }
}
