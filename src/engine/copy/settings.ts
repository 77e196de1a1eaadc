import { quoteLiteral } from '../names.ts'
import type { Copy } from './copy.ts'

/** A copy is there to be changed, whether its parent is closed to writers or not. */
const LEFT_OUT = '^(default_transaction_read_only|transaction_read_only)='

/** Statements for the maintenance database that give the copy what was set for its parent, and for its owner's role. */
export async function settingsOf({ admin, from, to }: Copy): Promise<string[]> {
  const database = (name: string) => `(SELECT oid FROM pg_database WHERE datname = ${quoteLiteral(name)})`
  const role = (name: string) => `(SELECT oid FROM pg_authid WHERE rolname = ${quoteLiteral(name)})`
  const kept = `(SELECT array_agg(entry) FROM unnest(setconfig) AS entry WHERE entry !~ ${quoteLiteral(LEFT_OUT)})`
  // As rows: a setting's text is then neither read nor checked again, and rules nothing in this session.
  const copyRows = (where: string, into: string) =>
    `INSERT INTO pg_db_role_setting (setdatabase, setrole, setconfig)
       SELECT ${into}, ${kept} FROM pg_db_role_setting WHERE ${where} AND ${kept} IS NOT NULL`
  return [
    `DELETE FROM pg_db_role_setting WHERE setdatabase = ${database(to.database)}`,
    `DELETE FROM pg_db_role_setting WHERE setdatabase = 0 AND setrole = ${role(to.owner)}`,
    copyRows(`setdatabase = ${database(from.database)} AND setrole = 0`, `${database(to.database)}, 0`),
    copyRows(
      `setdatabase = ${database(from.database)} AND setrole = ${role(from.owner)}`,
      `${database(to.database)}, ${role(to.owner)}`,
    ),
    copyRows(`setdatabase = 0 AND setrole = ${role(from.owner)}`, `0, ${role(to.owner)}`),
    ...(await databaseGrants({ admin, from, to })),
  ]
}

/** What shared roles may do with the parent's database; its own roles get what every project's do. */
async function databaseGrants({ admin, from, to }: Pick<Copy, 'admin' | 'from' | 'to'>): Promise<string[]> {
  const rows = await admin.rows<{ statement: string }>(
    `SELECT format('GRANT %s ON DATABASE ${to.database} TO %I', privilege_type, pg_get_userbyid(grantee)) AS statement
       FROM pg_database, aclexplode(datacl)
      WHERE datname = ${quoteLiteral(from.database)} AND grantee <> 0 AND pg_get_userbyid(grantee) !~ '^p_[a-z]{20}'`,
  )
  return rows.map(({ statement }) => statement)
}
