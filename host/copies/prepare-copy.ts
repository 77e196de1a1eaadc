import type { AdminSession, Instance } from '../instances/types.ts'
import { emptyDatabase } from './empty-database.ts'
import { emptyStorage } from './empty-storage.ts'

/**
 * Turns a started copy into an independent instance. It may be repeated after a failure. Until it has run, the server must not
 * start workers that act for the parent: `max_logical_replication_workers=0`, and no scheduler such as pg_cron.
 * No statement here runs the owner's code with superuser rights.
 */
export async function prepareCopy(
  copy: Pick<Instance, 'withAdmin' | 'connect'>,
  options: { data: boolean },
): Promise<void> {
  const logins = await copy.withAdmin('postgres', async (admin) => {
    await disableEventTriggers(admin)
    await makeWritable(admin)
    if (!options.data) await dropOtherDatabases(admin)
    return listTemporaryLogins(admin)
  })
  for (const database of await listDatabases(copy)) {
    await copy.withAdmin(database, async (admin) => {
      await disableEventTriggers(admin)
      await dropSubscriptions(admin)
      for (const login of logins) {
        await admin.rows(`REASSIGN OWNED BY ${login} TO postgres`)
        await admin.rows(`DROP OWNED BY ${login}`)
      }
    })
  }
  await copy.withAdmin('postgres', async (admin) => {
    await disableEventTriggers(admin)
    for (const login of logins) await admin.rows(`DROP ROLE IF EXISTS ${login}`)
    if (options.data) await emptyStorage(copy, admin)
    else await emptyDatabase(admin)
  })
}

/** Turns off event triggers; the daemon's sessions override all other settings of the owner already. */
const disableEventTriggers = (admin: AdminSession) => admin.rows('SET event_triggers = off')

const READ_ONLY = `'^(default_transaction_read_only|transaction_read_only)='`

/** Makes the copy writable even if its parent is read-only. Changes rows, because statements would check all other settings. */
async function makeWritable(admin: AdminSession): Promise<void> {
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

async function listTemporaryLogins(admin: AdminSession): Promise<string[]> {
  const rows = await admin.rows<{ name: string }>(
    `SELECT rolname AS name FROM pg_roles WHERE rolname ~ '^(cli|jit)_login_[a-z]{8}$'`,
  )
  return rows.map(({ name }) => name)
}

/** Lists the databases that accept connections; nothing runs in the others. */
async function listDatabases(copy: Pick<Instance, 'withAdmin'>): Promise<string[]> {
  const rows = await copy.withAdmin('postgres', (admin) =>
    admin.rows<{ name: string }>('SELECT datname AS name FROM pg_database WHERE datallowconn AND datconnlimit <> -2'),
  )
  return rows.map(({ name }) => name)
}

/** Drops subscriptions but not their slots at the publisher, which serve the parent. */
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
