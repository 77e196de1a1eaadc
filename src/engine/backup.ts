import { cloneDatabase } from './copy/clone.ts'
import { dropLink } from './copy/link.ts'
import { copyLogically } from './copy/logical.ts'
import { dropDatabase, endAllSessions, lockDatabase, setConnectable } from './database.ts'
import { EngineUnavailable, type Fence } from './engine.ts'
import { type ProjectNames, projectNames, quoteLiteral } from './names.ts'
import { type Server, type Session, withAdmin } from './session.ts'

/** Whole copies of projects' databases in the same cluster. */
export interface DatabaseBackups {
  /** As of one moment, while the database's sessions go on; made anew when it is asked for again. */
  make(request: BackupRequest, fence?: Fence): Promise<void>
  /** A copy of the backup, to take the database's place; the database stays as it is. */
  unpack(request: BackupRequest, fence?: Fence): Promise<void>
  /** Puts the unpacked copy in the database's place, or changes nothing. The database is closed from then on. */
  replace(backup: Backup, fence?: Fence): Promise<void>
  /** Without an id: what a restore left behind. */
  remove(found: FoundBackup, fence?: Fence): Promise<void>
  /** Of all projects, and what restores work with or left behind. */
  list(): Promise<FoundBackup[]>
}

interface Backup {
  ref: string
  id: number
}

interface BackupRequest extends Backup {
  runnerPassword: string
}

export interface FoundBackup {
  ref: string
  id?: number
}

type WithDatabase = <Value>(
  database: string,
  fence: Fence | undefined,
  work: (admin: Session) => Promise<Value>,
) => Promise<Value>

/** A project can be worked on while its backup is made: what is kept apart is work on the same database. */
export function databaseBackups(cluster: Server, withDatabase: WithDatabase): DatabaseBackups {
  const inBackup = <Value>({ ref, id }: Backup, fence: Fence | undefined, work: (admin: Session) => Promise<Value>) =>
    withDatabase(backupNames(projectNames(ref), id).database, fence, work)
  const inProject = <Value>(ref: string, fence: Fence | undefined, work: (admin: Session) => Promise<Value>) =>
    withDatabase(projectNames(ref).database, fence, work)
  return {
    make: (request, fence) => inBackup(request, fence, (admin) => make(cluster, admin, request)),
    unpack: (request, fence) => inProject(request.ref, fence, (admin) => unpack(cluster, admin, request)),
    replace: (backup, fence) => inProject(backup.ref, fence, (admin) => replace(admin, backup)),
    remove: ({ ref, id }, fence) =>
      id === undefined
        ? inProject(ref, fence, (admin) => remove(admin, { ref }))
        : inBackup({ ref, id }, fence, (admin) => remove(admin, { ref, id })),
    list: () => withAdmin(cluster, (admin) => list(admin, '[a-z]{20}')),
  }
}

/** Of the whole project, when it is removed; one that is being made has lost what it is made from, and ends. */
export async function dropBackups(admin: Session, names: ProjectNames): Promise<void> {
  for (const found of await list(admin, names.owner.slice(2))) {
    if (found.id !== undefined) await lockDatabase(admin, backupNames(names, found.id))
    await remove(admin, found)
  }
}

async function make(cluster: Server, admin: Session, { ref, id, runnerPassword }: BackupRequest): Promise<void> {
  const from = projectNames(ref)
  const to = backupNames(from, id)
  await admin.rows('SET statement_timeout = 0')
  await dropLink(admin, to)
  await dropDatabase(admin, to)
  const copy = { cluster, admin, from, to, runnerPassword, data: true, objects: true }
  try {
    if (!(await cloneDatabase(copy))) await copyLogically(copy)
    await admin.rows(close(to, WHOLE))
  } catch (error) {
    await dropDatabase(admin, to).catch(() => {})
    throw error
  }
}

async function unpack(cluster: Server, admin: Session, { ref, id, runnerPassword }: BackupRequest): Promise<void> {
  const names = projectNames(ref)
  const from = backupNames(names, id)
  const to = unpackedNames(names)
  await admin.rows('SET statement_timeout = 0')
  if ((await commentOn(admin, from)) !== WHOLE) throw new BackupGone(`the cluster has no backup ${id} of this project`)
  await dropDatabase(admin, to)
  if (!(await cloneDatabase({ cluster, admin, from, to, runnerPassword, data: true, objects: true }))) {
    throw new EngineUnavailable('The backup is in use', { code: '55006' })
  }
  await admin.rows(close(to, restoredFrom(id)))
}

/** The project's owner could open or drop what is his. */
const close = ({ database }: ProjectNames, comment: string) =>
  [
    `ALTER DATABASE ${database} OWNER TO CURRENT_USER`,
    `ALTER DATABASE ${database} WITH ALLOW_CONNECTIONS false`,
    `COMMENT ON DATABASE ${database} IS ${quoteLiteral(comment)}`,
  ].join('; ')

/** Two renames in one transaction: at each moment a database of the project's name is the old one or the new one. */
async function replace(admin: Session, { ref, id }: Backup): Promise<void> {
  const names = projectNames(ref)
  const unpacked = unpackedNames(names)
  const replaced = replacedNames(names)
  await admin.rows('SET statement_timeout = 0')
  if ((await commentOn(admin, unpacked)) === restoredFrom(id)) {
    await dropDatabase(admin, replaced)
    await setConnectable(admin, names, false)
    await endAllSessions(admin, names)
    await admin.rows(
      [
        ...(await takeOver(admin, names, unpacked)),
        `ALTER DATABASE ${names.database} RENAME TO ${replaced.database}`,
        `ALTER DATABASE ${unpacked.database} RENAME TO ${names.database}`,
      ].join('; '),
    )
  } else if ((await commentOn(admin, names)) !== restoredFrom(id)) {
    throw new EngineUnavailable('The copy of the backup is gone', { code: '3D000' })
  }
  await dropDatabase(admin, replaced)
}

/** What Postgres keeps of a database outside it: whose it is, who may connect, what is set for it. */
async function takeOver(admin: Session, from: ProjectNames, to: ProjectNames): Promise<string[]> {
  const oid = ({ database }: ProjectNames) => `(SELECT oid FROM pg_database WHERE datname = ${quoteLiteral(database)})`
  const grants = await admin.rows<{ statement: string }>(
    `SELECT format('GRANT %s ON DATABASE ${to.database} TO %s %s', privilege_type,
         CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END,
         CASE WHEN is_grantable THEN 'WITH GRANT OPTION' END) AS statement
       FROM pg_database, aclexplode(datacl) WHERE datname = ${quoteLiteral(from.database)}`,
  )
  return [
    `ALTER DATABASE ${to.database} OWNER TO ${from.owner}`,
    `REVOKE ALL ON DATABASE ${to.database} FROM PUBLIC`,
    ...grants.map(({ statement }) => statement),
    `DELETE FROM pg_db_role_setting WHERE setdatabase = ${oid(to)}`,
    `INSERT INTO pg_db_role_setting (setdatabase, setrole, setconfig)
       SELECT ${oid(to)}, setrole, setconfig FROM pg_db_role_setting WHERE setdatabase = ${oid(from)}`,
  ]
}

async function remove(admin: Session, { ref, id }: FoundBackup): Promise<void> {
  const names = projectNames(ref)
  const databases = id === undefined ? [unpackedNames(names), replacedNames(names)] : [backupNames(names, id)]
  await admin.rows('SET statement_timeout = 0')
  for (const database of databases) await dropDatabase(admin, database)
}

async function list(admin: Session, ref: string): Promise<FoundBackup[]> {
  const rows = await admin.rows<{ name: string }>(
    `SELECT datname AS name FROM pg_database WHERE datname ~ ${quoteLiteral(`^p_${ref}_(b[0-9]+|unpacked|replaced)$`)}`,
  )
  return rows.map(({ name }) => {
    const [, found = '', id] = /^p_([a-z]{20})_(?:b(\d+))?/.exec(name) ?? []
    return { ref: found, ...(id && { id: Number(id) }) }
  })
}

/** Undefined also for a database that is half dropped. */
async function commentOn(admin: Session, { database }: ProjectNames): Promise<string | undefined> {
  const [row] = await admin.rows<{ comment: string | null }>(
    `SELECT shobj_description(oid, 'pg_database') AS comment
       FROM pg_database WHERE datname = ${quoteLiteral(database)} AND datconnlimit <> -2`,
  )
  return row?.comment ?? undefined
}

/** There is nothing to restore, and never will be. */
export class BackupGone extends Error {
  override readonly name = 'BackupGone'
}

/** The comments of a database that is finished: what bears another is dropped and made anew. */
const WHOLE = 'A backup'
const restoredFrom = (id: number) => `Restored from backup ${id}`

function backupNames(names: ProjectNames, id: number): ProjectNames {
  if (!Number.isSafeInteger(id) || id < 0) throw new Error('The id of a backup is a whole number')
  return { ...names, database: `${names.owner}_b${id}` }
}

const unpackedNames = (names: ProjectNames): ProjectNames => ({ ...names, database: `${names.owner}_unpacked` })
const replacedNames = (names: ProjectNames): ProjectNames => ({ ...names, database: `${names.owner}_replaced` })
