import { type ProjectNames, quoteLiteral } from '../names.ts'
import { API_ROLES, dropRole, unchecked } from '../roles.ts'
import { RANDOM_PASSWORD_ITERATIONS, scramVerifier } from '../scram.ts'
import { type Session, withoutObstacles } from '../session.ts'
import type { Copy } from './copy.ts'

/** The schema, in the copy, of the functions that read from the parent; gone when the copy is whole. */
export const LINK = 'pilothouse_link'

const VALID = "interval '1 day'"

/**
 * The way of a copy's owner into the parent's database: a role with the rights of the parent's owner, and no more, since the
 * owner's own code can run in the session that uses it. Policies do not bind it. Returns how Postgres reaches itself.
 */
export async function openLink({ cluster, admin, from, to }: Copy, inside: Session): Promise<string> {
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
     END $do$;
     ${unchecked(role)}`,
  )
  await inside.rows(
    [
      `CREATE SCHEMA ${LINK}`,
      `GRANT USAGE ON SCHEMA ${LINK} TO ${to.owner}, ${to.runner}`,
      ...FUNCTIONS.map(
        ([signature, returns, symbol]) =>
          `CREATE FUNCTION ${LINK}.${signature} RETURNS ${returns} LANGUAGE c STRICT AS '$libdir/dblink', '${symbol}'`,
      ),
      `REVOKE ALL ON ALL FUNCTIONS IN SCHEMA ${LINK} FROM PUBLIC`,
      `GRANT EXECUTE ON FUNCTION ${LINK}.connect(text) TO ${to.runner}`,
      `GRANT EXECUTE ON FUNCTION ${LINK}.execute(text), ${LINK}.fetch(text) TO ${to.owner}`,
    ].join(';\n'),
  )
  const [address] = await admin.rows<{ host: string; port: number }>(
    'SELECT host(inet_server_addr()) AS host, inet_server_port() AS port',
  )
  const options = Object.entries({ ...SETTINGS, ...withoutObstacles(cluster) }).map(
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

/**
 * Not as an extension, which the owner may have himself. Of one connection without a name: where dblink takes a name it takes an
 * address too, and the owner's code would reach from the server whatever it reaches.
 */
const FUNCTIONS = [
  ['connect(text)', 'text', 'dblink_connect'],
  ['execute(text)', 'text', 'dblink_exec'],
  ['fetch(text)', 'SETOF record', 'dblink_record'],
] as const

/** Before any of the owner's code runs, which may neither connect nor do so again. */
export async function connect({ to }: Copy, { owner, inside, address }: Connecting): Promise<void> {
  await owner.rows('SET ROLE none')
  await owner.rows(`SELECT ${LINK}.connect($1)`, [address])
  await owner.rows(`SET ROLE ${to.owner}`)
  await inside.rows(`DROP FUNCTION ${LINK}.connect(text)`)
}

interface Connecting {
  owner: Session
  inside: Session
  address: string
}

export async function dropLink(admin: Session, to: ProjectNames): Promise<void> {
  const role = linkRole(to)
  const found = await admin.rows(`SELECT FROM pg_roles WHERE rolname = ${quoteLiteral(role)}`)
  if (found.length === 0) return
  await admin.rows(`SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity WHERE usename = ${quoteLiteral(role)}`)
  // The owner's code may have made something as this role, in the parent.
  await dropRole(admin, role)
}

const linkRole = ({ owner }: ProjectNames) => `${owner}_copy`
