import { randomBytes } from 'node:crypto'
import { rm } from 'node:fs/promises'
import { errorMessage } from '../../dev/start-error.ts'
import type { Archive } from '../backups/archive.ts'
import { readStoppedLsn } from '../backups/control-file.ts'
import { newestTimeline } from '../backups/plan.ts'
import { switchData } from '../backups/restore.ts'
import { readTimeline } from '../backups/wal.ts'
import { ownAll, syncFiles } from '../instances/files.ts'
import type { PostgresInstance } from '../instances/instance.ts'
import type { InstancePool } from '../instances/instances.ts'
import { Refused } from '../instances/types.ts'
import { SUPERUSER } from '../template/roles.ts'
import { initCluster } from '../template/template.ts'
import { AMBIGUOUS_NAMES, type DumpEntry, dumpSchema } from './dump.ts'
import { createDatabase, finishObjects, grantToLoader, type Loaders, loadObjects } from './load.ts'
import { requireUpgradable } from './obstacles.ts'
import { comesFirst, readPlatform } from './platform.ts'
import { copyRoles } from './roles.ts'
import { copyExtensionOwners, copyPlatformRows, copyRows } from './rows.ts'
import { withSession } from './sessions.ts'
import { startTimelineAfter } from './timeline.ts'

export interface UpgradeParts {
  pool: InstancePool
  /** Ends the sessions of clients. */
  endSessions(name: string): void
  archive: Archive | undefined
}

const CLOSED = 'The project is being upgraded'

/**
 * Copies the instance's databases into a new data folder of another version, and then switches to it. Clients are refused
 * meanwhile. A failure leaves the old data in service; for a day after a success, `undoRestore` switches back to it.
 */
export async function upgradeInstance(parts: UpgradeParts, instance: PostgresInstance, major: string): Promise<void> {
  const { pool, endSessions, archive } = parts
  if (instance.record.major === major) return
  await requireUpgradable(pool, instance, major)
  const draft = pool.draftOf(instance, major)
  const drop = async () => {
    await draft.stop()
    for (const folder of [draft.paths.data, draft.paths.socket]) await rm(folder, { recursive: true, force: true })
  }
  const during = async <Value>(phase: NonNullable<PostgresInstance['upgrade']>, work: () => Promise<Value>) => {
    instance.upgrade = phase
    return work().catch((error) => {
      throw new Refused([{ setting: `upgrade.${phase}`, reason: errorMessage(error) }])
    })
  }
  try {
    await instance.whileClosed(CLOSED, async () => {
      endSessions(instance.name)
      await during('launch', async () => {
        await drop()
        await initCluster(draft.paths.data, draft.programs)
        if (pool.isDurable) await syncFiles(draft.paths.data)
        await ownAll(draft.paths.data, draft.record.account)
        await draft.wake()
        if (archive) {
          // The timeline starts before there are rows, because recovery empties unlogged tables.
          await draft.stop()
          // A restore may have begun a timeline that is not in the archive yet.
          const { timeline } = await readTimeline(instance.paths.data, instance.record.account)
          await startTimelineAfter(Math.max(timeline, await newestTimeline(archive, instance.name)), draft)
          await draft.wake()
        }
      })
      await during('copy', () => copyDatabases(instance, draft))
      await during('complete', async () => {
        await draft.stop()
        // Fails unless the server was stopped cleanly: a recovery could lose rows that were copied.
        await readStoppedLsn(draft.paths.data)
      })
      await during('switch', () => switchData(archive, instance, draft.paths.data))
    })
  } finally {
    instance.upgrade = undefined
    await drop()
  }
}

/** Lists the databases to copy. The templates contain nothing of the owner. */
const DATABASES = `SELECT datname AS name FROM pg_database WHERE NOT datname IN ('template0', 'template1') AND datconnlimit <> -2`

async function copyDatabases(from: PostgresInstance, to: PostgresInstance): Promise<void> {
  const loader = `pilothouse_upgrade_${randomBytes(4).toString('hex')}`
  const names = await from.withAdmin('postgres', (source) =>
    to.withAdmin('template1', async (target) => {
      await copyRoles(source, target)
      await target.rows('DROP DATABASE postgres')
      await target.rows(`CREATE ROLE ${loader} LOGIN BYPASSRLS`)
      const roles = await target.rows<{ name: string }>(
        `SELECT quote_ident(rolname) AS name FROM pg_roles WHERE NOT rolsuper AND rolname !~ '^pg_' AND rolname <> $1`,
        [loader],
      )
      for (const { name } of roles) await target.rows(`GRANT ${name} TO ${loader} WITH INHERIT TRUE, SET FALSE`)
      return source.rows<{ name: string }>(DATABASES)
    }),
  )
  for (const { name } of names) await copyDatabase(from, to, { database: name, loader })
  await to.withAdmin('postgres', (admin) => admin.rows(`DROP OWNED BY ${loader}; DROP ROLE ${loader}`))
}

interface DatabaseCopy {
  database: string
  loader: string
}

/** Copies a database from one snapshot of the old server. */
async function copyDatabase(
  { paths: { socket: source } }: PostgresInstance,
  { paths: { socket: target } }: PostgresInstance,
  { database, loader }: DatabaseCopy,
): Promise<void> {
  await withSession({ socket: source, database, user: SUPERUSER }, async (from) => {
    await from.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY')
    const { rows } = await from.query<{ snapshot: string }>('SELECT pg_export_snapshot() AS snapshot')
    const [ambiguous] = (await from.query<{ name: string }>(AMBIGUOUS_NAMES)).rows
    if (ambiguous) throw new Error(`The name ${JSON.stringify(ambiguous.name)} contains a semicolon: rename it first`)
    const dump = (section: 'pre-data' | 'post-data') =>
      dumpSchema({ socket: source, database, snapshot: rows[0]?.snapshot ?? '', section })
    const [definitions, dependents] = await Promise.all([dump('pre-data'), dump('post-data')])
    const platform = await readPlatform(from)
    const isFirst = (entry: DumpEntry) => comesFirst(entry, platform)
    const isLater = (entry: DumpEntry) => !isFirst(entry)
    const deferred: string[] = []
    const inDatabase = <Value>(work: (loaders: Loaders) => Promise<Value>) =>
      withSession({ socket: target, database, user: SUPERUSER }, async (admin) => {
        await admin.query('SET event_triggers = off')
        return withSession({ socket: target, database, user: loader }, (client) =>
          work({ admin, loader: client, platform }),
        )
      })
    await withSession({ socket: target, database: 'template1', user: SUPERUSER }, (admin) =>
      createDatabase(admin, definitions.database),
    )
    await inDatabase(async (loaders) => {
      await grantToLoader(loader, loaders.admin, 'ALL', 'SCHEMA public')
      // The objects of superusers and services are complete and guarded before the loader calls a function of the owner.
      await loadObjects(loaders, [...definitions.entries.slice(0, 1), ...definitions.entries.filter(isFirst)], deferred)
      await copyPlatformRows(from, loaders)
      await loadObjects(loaders, dependents.entries.filter(isFirst), deferred)
      await loadObjects(loaders, definitions.entries.filter(isLater), deferred)
    })
    // New sessions have the owner's search path, on which functions in checks may rely.
    await inDatabase((loaders) => copyRows(from, loaders))
    await inDatabase(async (loaders) => {
      await loadObjects(loaders, dependents.entries.filter(isLater), deferred)
      await finishObjects(loaders, deferred)
      await copyExtensionOwners(from, loaders)
      await loaders.loader.query('ANALYZE')
      await loaders.admin.query(`DROP OWNED BY ${loader}`)
    })
  })
}
