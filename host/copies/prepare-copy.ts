import type { AdminSession, Instance } from '../instances/types.ts'
import { emptyDatabase } from './empty-database.ts'
import { emptyStorage } from './empty-storage.ts'

/**
 * Makes a started copy an instance of its own. It may be repeated after a failure. Until it has run, the server must not start
 * what acts for the parent: `max_logical_replication_workers=0`, and no scheduler such as pg_cron.
 * Nothing here runs code of the owner's with the rights of the superuser.
 */
export async function prepareCopy(
  copy: Pick<Instance, 'withAdmin' | 'connect'>,
  options: { data: boolean },
): Promise<void> {
  const logins = await copy.withAdmin('postgres', async (admin) => {
    await quieten(admin)
    await openToWriters(admin)
    if (!options.data) await dropOtherDatabases(admin)
    return temporaryLogins(admin)
  })
  for (const database of await databases(copy)) {
    await copy.withAdmin(database, async (admin) => {
      await quieten(admin)
      await dropSubscriptions(admin)
      for (const login of logins) {
        await admin.rows(`REASSIGN OWNED BY ${login} TO postgres`)
        await admin.rows(`DROP OWNED BY ${login}`)
      }
    })
  }
  await copy.withAdmin('postgres', async (admin) => {
    await quieten(admin)
    for (const login of logins) await admin.rows(`DROP ROLE IF EXISTS ${login}`)
    if (options.data) await emptyStorage(copy, admin)
    else await emptyDatabase(admin)
  })
}

/** The session's other settings and its search path are the daemon's own already. */
const quieten = (admin: AdminSession) => admin.rows('SET event_triggers = off')

const READ_ONLY = `'^(default_transaction_read_only|transaction_read_only)='`

/** Whether or not its parent is closed to them. As rows, since statements would read and check the other settings again. */
async function openToWriters(admin: AdminSession): Promise<void> {
  await admin.rows(`UPDATE pg_db_role_setting SET setconfig =
      ARRAY(SELECT entry FROM unnest(setconfig) AS entry WHERE entry !~ ${READ_ONLY})
    WHERE EXISTS (SELECT FROM unnest(setconfig) AS entry WHERE entry ~ ${READ_ONLY})`)
  await admin.rows(`DELETE FROM pg_db_role_setting WHERE setconfig = '{}'`)
}

async function dropOtherDatabases(admin: AdminSession): Promise<void> {
  const rows = await admin.rows<{ name: string }>(
    `SELECT quote_ident(datname) AS name FROM pg_database WHERE datname NOT IN ('postgres', 'template0', 'template1')`,
  )
  for (const { name } of rows) {
    await admin.rows(`ALTER DATABASE ${name} IS_TEMPLATE false`)
    await admin.rows(`DROP DATABASE ${name} WITH (FORCE)`)
  }
}

async function temporaryLogins(admin: AdminSession): Promise<string[]> {
  const rows = await admin.rows<{ name: string }>(
    `SELECT rolname AS name FROM pg_roles WHERE rolname ~ '^(cli|jit)_login_[a-z]{8}$'`,
  )
  return rows.map(({ name }) => name)
}

/** All that can be connected to; in the others nothing runs. */
async function databases(copy: Pick<Instance, 'withAdmin'>): Promise<string[]> {
  const rows = await copy.withAdmin('postgres', (admin) =>
    admin.rows<{ name: string }>('SELECT datname AS name FROM pg_database WHERE datallowconn AND datconnlimit <> -2'),
  )
  return rows.map(({ name }) => name)
}

/** Of the publisher's slots, none is touched: they serve the parent. */
async function dropSubscriptions(admin: AdminSession): Promise<void> {
  const rows = await admin.rows<{ name: string }>(
    `SELECT quote_ident(subname) AS name FROM pg_subscription
      WHERE subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())`,
  )
  for (const { name } of rows) {
    await admin.rows(`ALTER SUBSCRIPTION ${name} DISABLE`)
    await admin.rows(`ALTER SUBSCRIPTION ${name} SET (slot_name = NONE)`)
    await admin.rows(`DROP SUBSCRIPTION ${name}`)
  }
}
