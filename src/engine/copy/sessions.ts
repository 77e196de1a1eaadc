import { SqlError } from '../engine.ts'
import { openSession, type Session } from '../session.ts'
import type { Copy } from './copy.ts'

/** They win over what an owner has set for his database. */
const SETTINGS = {
  role: 'none',
  search_path: 'pg_catalog',
  check_function_bodies: 'off',
  client_min_messages: 'error',
  statement_timeout: 0,
  lock_timeout: 30_000,
  idle_in_transaction_session_timeout: 0,
  idle_session_timeout: 0,
  // A server process whose caller is gone stops working.
  client_connection_check_interval: 2_000,
  default_transaction_read_only: 'off',
  quote_all_identifiers: 'off',
  DateStyle: 'ISO',
  IntervalStyle: 'postgres',
  extra_float_digits: 3,
  xmloption: 'content',
  standard_conforming_strings: 'on',
  lc_monetary: 'C',
}

export function superuser({ cluster }: Pick<Copy, 'cluster'>, database: string): Promise<Session> {
  const { username, password } = new URL(cluster.adminUrl)
  const login = { user: decodeURIComponent(username), password: decodeURIComponent(password), database }
  return openSession(cluster, { ...login, settings: SETTINGS })
}

export const asOwner = (copy: Copy) => asRunner(copy, copy.to.owner)

/** With the rights of the copy's owner too, but not as him. */
export function asRunner({ cluster, to, runnerPassword }: Copy, role = 'none'): Promise<Session> {
  const settings = { ...SETTINGS, role }
  return openSession(cluster, { user: to.runner, password: runnerPassword, database: to.database, settings })
}

export async function withSession<Value>(
  opening: Promise<Session>,
  work: (session: Session) => Promise<Value>,
): Promise<Value> {
  const session = await opening
  const { tooLarge } = boundReceived(session)
  try {
    return await Promise.race([work(session), tooLarge])
  } finally {
    session.close()
  }
}

/** Rows go from server to server: what comes here is definitions and comments, and what the owner's code says. */
const RECEIVED_BYTES_MAX = 32 * 1024 ** 2

function boundReceived(session: Session): { tooLarge: Promise<never> } {
  let bytes = 0
  const tooLarge = new Promise<never>((_, reject) => {
    session.wire.stream.on('data', (chunk) => {
      bytes += chunk.byteLength
      if (bytes <= RECEIVED_BYTES_MAX) return
      session.drop()
      const message = `the definitions and comments of the database are larger than ${RECEIVED_BYTES_MAX} bytes`
      reject(new SqlError({ code: '54000', message }))
    })
  })
  tooLarge.catch(() => {})
  return { tooLarge }
}
