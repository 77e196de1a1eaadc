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
    return namesOf(admin, TEMPORARY_LOGINS)
  })
  for (const database of await copy.withAdmin('postgres', (admin) => namesOf(admin, DATABASES))) {
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
  const others = `SELECT quote_ident(datname) AS name FROM pg_database WHERE datname NOT IN ('postgres', 'template0', 'template1')`
  for (const name of await namesOf(admin, others)) {
    await admin.rows(`ALTER DATABASE ${name} IS_TEMPLATE false`)
    await admin.rows(`DROP DATABASE ${name} WITH (FORCE)`)
  }
}

const namesOf = async (admin: AdminSession, query: string): Promise<string[]> =>
  (await admin.rows<{ name: string }>(query)).map(({ name }) => name)

const TEMPORARY_LOGINS = `SELECT rolname AS name FROM pg_roles WHERE rolname ~ '^(cli|jit)_login_[a-z]{8}$'`
/** The databases that accept connections; nothing runs in the others. */
const DATABASES = 'SELECT datname AS name FROM pg_database WHERE datallowconn AND datconnlimit <> -2'
const SUBSCRIPTIONS = `SELECT quote_ident(subname) AS name FROM pg_subscription
  WHERE subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())`

/** Drops subscriptions but not their slots at the publisher, which serve the parent. */
async function dropSubscriptions(admin: AdminSession): Promise<void> {
  for (const name of await namesOf(admin, SUBSCRIPTIONS)) {
    await admin.rows(`ALTER SUBSCRIPTION ${name} DISABLE`)
    await admin.rows(`ALTER SUBSCRIPTION ${name} SET (slot_name = NONE)`)
    await admin.rows(`DROP SUBSCRIPTION ${name}`)
  }
}
