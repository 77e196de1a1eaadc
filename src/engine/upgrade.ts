import { appMembership, appRightsOnDatabase } from './app-roles.ts'
import { superuser, withSession } from './copy/sessions.ts'
import { forApps } from './database.ts'
import type { ProjectNames } from './names.ts'
import type { Server, Session } from './session.ts'
import { STORAGE_VERSION, STORAGE_VERSION_QUERY, storageSchema } from './storage/schema.ts'
import { buildWall, TEMPLATE, WALL_QUERY } from './template.ts'

/** Who asks for a lock keeps all others waiting that come after him. */
const LOCK_WAIT_MS = 2_000

/**
 * Brings what is in a project's database to what the template has; what its owner has changed or dropped of his own since stays as
 * he left it. `admin` is a session in the maintenance database.
 */
export function upgradeDatabase(cluster: Server, admin: Session, names: ProjectNames): Promise<void> {
  const { database, owner } = names
  const schemas = [
    ...storageSchema('pg_database_owner', true),
    appMembership(owner),
    appRightsOnDatabase(database),
    `SET ROLE ${owner}`,
    ...forApps(names),
    'RESET ROLE',
  ]
  return withSession(superuser({ cluster }, database), async (inside) => {
    await inside.rows(WITHOUT_OWNERS_SETTINGS)
    const [found] = await inside.rows<{ storage: string | null; wall: string | null }>(
      `SELECT (${STORAGE_VERSION_QUERY}) AS storage, (${WALL_QUERY}) AS wall`,
    )
    await each(inside, [
      ...(found?.wall === TEMPLATE ? [] : [() => buildWall(admin, inside)]),
      ...(found?.storage === STORAGE_VERSION ? [] : [() => inside.rows(schemas.join(';\n'))]),
    ])
  })
}

/** Of what an owner has made impossible the others do not wait. */
async function each(inside: Session, parts: readonly (() => Promise<unknown>)[]): Promise<void> {
  const failures: unknown[] = []
  for (const part of parts) {
    await part().catch(async (error) => {
      failures.push(error)
      await inside.rows('ROLLBACK').catch(() => {})
    })
  }
  if (failures.length > 0) throw failures[0]
}

/** Those that a session does not begin with: some of them change what SQL means. */
const WITHOUT_OWNERS_SETTINGS = `
  SELECT count(set_config(name, boot_val, false)) FROM pg_settings
   WHERE source = 'database' AND context IN ('user', 'superuser') AND boot_val IS NOT NULL;
  SET statement_timeout = '1min';
  SET lock_timeout = ${LOCK_WAIT_MS}`
