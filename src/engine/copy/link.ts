import { type ProjectNames, quoteLiteral } from '../names.ts'
import { API_ROLES, dropRole } from '../roles.ts'
import { RANDOM_PASSWORD_ITERATIONS, scramVerifier } from '../scram.ts'
import type { Session } from '../session.ts'
import type { Copy } from './copy.ts'
import { newerSettings } from './sessions.ts'

/** The schema, in the copy, of the functions that read from the parent; gone when the copy is whole. */
export const LINK = 'pilothouse_link'

const VALID = "interval '1 day'"

/**
 * The way of a copy's owner into the parent's database: a role with the rights of the parent's owner, and no more, since the
 * owner's own code can run in the session that uses it. Policies do not bind it. Returns how Postgres reaches itself.
 */
export async function openLink({ admin, from, to }: Copy, inside: Session): Promise<string> {
  const password = [...crypto.getRandomValues(new Uint8Array(24))]
    .map((byte) => byte.toString(16).padStart(2, '0'))
    .join('')
  const secret = quoteLiteral(await scramVerifier(password, RANDOM_PASSWORD_ITERATIONS))
  const role = linkRole(to)
  await dropLink(admin, to)
  await admin.rows(
    `DO $do$ BEGIN
       IF to_regrole('${role}') IS NULL THEN CREATE ROLE ${role}; END IF;
       EXECUTE format('ALTER ROLE ${role} WITH LOGIN NOINHERIT BYPASSRLS CONNECTION LIMIT 1 PASSWORD %L VALID UNTIL %L',
         ${secret}, now() + ${VALID});
       GRANT ${[from.owner, ...API_ROLES].join(', ')} TO ${role} WITH INHERIT TRUE, SET FALSE, ADMIN FALSE;
     END $do$`,
  )
  await inside.rows(
    [
      `CREATE SCHEMA ${LINK}`,
      `GRANT USAGE ON SCHEMA ${LINK} TO ${to.owner}`,
      ...FUNCTIONS.map(
        ([signature, returns, symbol]) =>
          `CREATE FUNCTION ${LINK}.${signature} RETURNS ${returns} LANGUAGE c STRICT AS '$libdir/dblink', '${symbol}'`,
      ),
      `REVOKE ALL ON ALL FUNCTIONS IN SCHEMA ${LINK} FROM PUBLIC`,
      `GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA ${LINK} TO ${to.owner}`,
    ].join(';\n'),
  )
  const [address] = await admin.rows<{ host: string; port: number }>(
    'SELECT host(inet_server_addr()) AS host, inet_server_port() AS port',
  )
  const options = Object.entries({ ...SETTINGS, ...(await newerSettings(admin)) }).map(
    ([name, value]) => `-c ${name}=${value}`,
  )
  const parts = {
    host: address?.host ?? '',
    port: String(address?.port ?? ''),
    dbname: from.database,
    user: role,
    password,
    application_name: 'pilothouse copy',
    options: options.join(' '),
  }
  return Object.entries(parts)
    .map(([name, value]) => `${name}='${value}'`)
    .join(' ')
}

/** They win over what the parent's owner has set for his database. */
const SETTINGS = {
  role: 'none',
  search_path: 'pg_catalog',
  statement_timeout: 0,
  lock_timeout: 10_000,
  idle_in_transaction_session_timeout: 0,
  idle_session_timeout: 0,
  default_transaction_read_only: 'on',
  row_security: 'on',
  client_encoding: 'UTF8',
  DateStyle: 'ISO',
  IntervalStyle: 'postgres',
  bytea_output: 'hex',
  extra_float_digits: 3,
  xmloption: 'content',
  standard_conforming_strings: 'on',
  lc_monetary: 'C',
}

/** Not as an extension, which the owner may have himself. */
const FUNCTIONS = [
  ['connect(text, text)', 'text', 'dblink_connect'],
  ['disconnect(text)', 'text', 'dblink_disconnect'],
  ['execute(text, text)', 'text', 'dblink_exec'],
  ['fetch(text, text)', 'SETOF record', 'dblink_record'],
] as const

export async function dropLink(admin: Session, to: ProjectNames): Promise<void> {
  const role = linkRole(to)
  const found = await admin.rows(`SELECT FROM pg_roles WHERE rolname = ${quoteLiteral(role)}`)
  if (found.length === 0) return
  await admin.rows(`SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity WHERE usename = ${quoteLiteral(role)}`)
  // The owner's code may have made something as this role, in the parent.
  await dropRole(admin, role)
}

const linkRole = ({ owner }: ProjectNames) => `${owner}_copy`
