import pg from 'pg'
import { SESSION_OPTIONS } from '../instances/admin.ts'

interface Place {
  /** The folder of the server's socket. */
  socket: string
  database: string
  user: string
}

/** Types of rows are text in both servers, in the same form. */
const FORMS = { datestyle: 'ISO', intervalstyle: 'postgres', extra_float_digits: '3', client_encoding: 'UTF8' }

/** Runs work in a session of a role, whatever settings it has been given; only the search path stays as the owner has set it. */
export async function withSession<Value>(place: Place, work: (client: pg.Client) => Promise<Value>): Promise<Value> {
  const { socket: host, database, user } = place
  const settings = [...Object.entries(FORMS), ...SESSION_OPTIONS.filter(([name]) => name !== 'search_path')]
  const options = settings.map(([name, value]) => `-c ${name}=${value}`).join(' ')
  const client = new pg.Client({ host, port: 5432, user, database, options, application_name: 'pilothouse' })
  // A lost session shows itself at the next query.
  client.on('error', () => {})
  try {
    await client.connect()
    return await work(client)
  } finally {
    await client.end().catch(() => {})
  }
}
