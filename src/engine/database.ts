import { APP_OWNER, appRightsOnDatabase, REALTIME_PUBLICATION, whereOurs } from './app-roles.ts'
import { changeEnding, endSessions, inDatabase, ofProject } from './ending.ts'
import { EngineUnavailable, type Fence, Superseded } from './engine.ts'
import { loginRoles, type ProjectNames, quoteLiteral } from './names.ts'
import { API_ROLES } from './roles.ts'
import { openSession, type Server, type Session, withAdmin } from './session.ts'
import { TEMPLATE } from './template.ts'

const API = API_ROLES.join(', ')

/** Created closed and opened last, so nobody can slip in while `PUBLIC` still may connect. Returns whether there was none. */
export async function ensureDatabase(admin: Session, names: ProjectNames): Promise<boolean> {
  const { database, owner } = names
  const found = await limits(admin, names)
  // Postgres marks a database whose removal was interrupted with this limit; it can only be dropped.
  if (found?.datconnlimit === -2) await dropDatabase(admin, names)
  const isMissing = !found || found.datconnlimit === -2
  if (isMissing) {
    await admin.rows(`CREATE DATABASE ${database} TEMPLATE ${TEMPLATE} OWNER ${owner} ALLOW_CONNECTIONS false`)
  }
  await admin.rows(`REVOKE ALL ON DATABASE ${database} FROM PUBLIC`)
  await admin.rows(
    [
      `ALTER DATABASE ${database} OWNER TO ${owner}`,
      `GRANT CONNECT ON DATABASE ${database} TO ${loginRoles(names).join(', ')}`,
      `GRANT TEMPORARY, CREATE ON DATABASE ${database} TO ${owner}`,
      appRightsOnDatabase(database),
      `ALTER DATABASE ${database} SET search_path = "$user", public, extensions`,
    ].join('; '),
  )
  await setConnectable(admin, names, true)
  return isMissing
}

export async function setConnectable(admin: Session, names: ProjectNames, connectable: boolean): Promise<void> {
  const { database } = names
  const found = await limits(admin, names)
  if (!found) {
    if (connectable) throw new EngineUnavailable('The database does not exist', { code: '3D000' })
    return
  }
  // A limit of none would keep everybody out, whatever is allowed.
  const limit = found.datconnlimit > 0 ? found.datconnlimit : -1
  const alter = `ALTER DATABASE ${database} WITH ALLOW_CONNECTIONS ${connectable} CONNECTION LIMIT ${limit} IS_TEMPLATE false`
  if (connectable) await admin.rows(alter)
  else await changeEnding(admin, inDatabase(names), alter)
}

/** Grants that only someone inside the database can make; the owner makes them himself, never a superuser. */
export async function prepareAsOwner(cluster: Server, names: ProjectNames, runnerPassword: string): Promise<void> {
  const { database, owner, runner, reader } = names
  const session = await openSession(cluster, {
    user: runner,
    password: runnerPassword,
    database,
    settings: { role: owner, search_path: 'pg_catalog', statement_timeout: 30_000, lock_timeout: 10_000 },
  })
  const grants = [
    `IN SCHEMA public GRANT ALL ON TABLES TO ${API}`,
    `IN SCHEMA public GRANT ALL ON SEQUENCES TO ${API}`,
    `IN SCHEMA public GRANT ALL ON FUNCTIONS TO ${API}`,
    `GRANT USAGE ON SCHEMAS TO ${reader}`,
    `GRANT SELECT ON TABLES TO ${reader}`,
    `GRANT SELECT ON SEQUENCES TO ${reader}`,
  ]
  try {
    const defaults = grants.map((grant) => `ALTER DEFAULT PRIVILEGES FOR ROLE ${owner} ${grant}`)
    await session.rows([...defaults, ...forApps(names)].join('; '))
  } finally {
    session.close()
  }
}

/** What migrations of apps count on; the owner may undo any of it. */
export function forApps({ owner, reader }: ProjectNames): string[] {
  const kinds = ['TABLES', 'SEQUENCES', 'FUNCTIONS']
  const defaults = [
    ...[...kinds, 'SCHEMAS', 'TYPES'].map((kind) => `${owner} GRANT ALL ON ${kind} TO ${APP_OWNER}`),
    ...kinds.map((kind) => `${APP_OWNER} IN SCHEMA public GRANT ALL ON ${kind} TO ${API}`),
    `${APP_OWNER} GRANT USAGE ON SCHEMAS TO ${reader}`,
    `${APP_OWNER} GRANT SELECT ON TABLES TO ${reader}`,
    `${APP_OWNER} GRANT SELECT ON SEQUENCES TO ${reader}`,
  ]
  return [whereOurs(...defaults.map((rights) => `ALTER DEFAULT PRIVILEGES FOR ROLE ${rights}`)), REALTIME_PUBLICATION]
}

/** Work on one database waits for each other, in whichever process it runs, until the session's end. */
export async function lockDatabase(admin: Session, { database }: Pick<ProjectNames, 'database'>): Promise<void> {
  await admin.rows(`SELECT pg_advisory_lock(hashtextextended(${quoteLiteral(database)}, 0))`)
}

export function withDatabase<Value>(
  cluster: Server,
  database: string,
  fence: Fence | undefined,
  work: (admin: Session) => Promise<Value>,
): Promise<Value> {
  return withAdmin(cluster, async (admin) => {
    await lockDatabase(admin, { database })
    if (fence && !(await fence())) throw new Superseded(`somebody else has taken over ${database}`)
    return await work(admin)
  })
}

/** Whose caller has locked it: to alter what somebody else is dropping would cost the session. */
export async function dropDatabase(admin: Session, names: ProjectNames): Promise<void> {
  const found = await limits(admin, names)
  if (!found) return
  if (found.datconnlimit !== -2) await setConnectable(admin, names, false)
  await admin.rows(`DROP DATABASE IF EXISTS ${names.database} WITH (FORCE)`)
}

/** Ends every session in the project's database and every session of its roles, until none is left. */
export async function endAllSessions(admin: Session, names: ProjectNames): Promise<void> {
  if (await endSessions(admin, ofProject(names))) return
  throw new EngineUnavailable('Sessions of this project could not be ended')
}

async function limits(admin: Session, { database }: ProjectNames): Promise<{ datconnlimit: number } | undefined> {
  const [row] = await admin.rows<{ datconnlimit: number }>(
    `SELECT datconnlimit FROM pg_database WHERE datname = ${quoteLiteral(database)}`,
  )
  return row
}
