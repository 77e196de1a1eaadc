import type pg from 'pg'
import { withClient } from '../copies/owner-session.ts'
import { optionsText, SESSION_OPTIONS, SUPERUSER_OPTIONS } from '../instances/admin.ts'
import { SUPERUSER } from '../template/roles.ts'

interface Place {
  /** The folder of the server's socket. */
  socket: string
  database: string
  user: string
}

/** Settings that give values the same text form on both servers. */
const TEXT_FORMATS = { datestyle: 'ISO', intervalstyle: 'postgres', extra_float_digits: '3', client_encoding: 'UTF8' }

/** Runs work in a session of a role, overriding the settings of the role and the database, except for the search path. */
export function withSession<Value>(
  { socket: host, database, user }: Place,
  work: (client: pg.Client) => Promise<Value>,
): Promise<Value> {
  const overriding = user === SUPERUSER ? SUPERUSER_OPTIONS : SESSION_OPTIONS
  const options = optionsText([
    ...Object.entries(TEXT_FORMATS),
    ...overriding.filter(([name]) => name !== 'search_path'),
  ])
  return withClient({ host, port: 5432, user, database, options, application_name: 'pilothouse' }, work)
}
