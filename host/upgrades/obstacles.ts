import { extensionNames } from '../extensions.ts'
import type { PostgresInstance } from '../instances/instance.ts'
import type { InstancePool } from '../instances/instances.ts'
import { type AdminSession, type Programs, Refused } from '../instances/types.ts'

/** A reason why an instance cannot be upgraded; `type` is that of the Management API if it has one. */
export type Obstacle = { type: string; reason: string } & Record<string, string>

const OBSTACLES = `
  SELECT jsonb_build_object('type', 'active_replication_slot', 'slot_name', slot_name,
      'reason', format('the logical replication slot %s would be lost: drop it first', slot_name)) AS obstacle
    FROM pg_replication_slots WHERE slot_type = 'logical'
  UNION ALL SELECT jsonb_build_object('type', 'subscription', 'subscription_name', subname,
      'reason', format('the subscription %s would lose its place: drop it first', subname)) FROM pg_subscription
  UNION ALL SELECT jsonb_build_object('type', 'prepared_transaction', 'transaction_name', gid,
      'reason', format('the prepared transaction %s would be lost: end it first', gid)) FROM pg_prepared_xacts
  UNION ALL SELECT jsonb_build_object('type', 'closed_database', 'database_name', datname,
      'reason', format('the database %s takes no connections: allow them or drop it first', datname))
    FROM pg_database WHERE NOT datallowconn AND datname <> 'template0'`

const EXTENSIONS = 'SELECT extname AS name FROM pg_extension'
/** Disk space for the copy, which stays beside the old data while the upgrade can be undone. */
const DISK_FACTOR = 1.5

/** Finds what prevents an upgrade: for example replication slots, extensions that the new version lacks, or too little free disk. */
export async function findObstacles(pool: InstancePool, instance: PostgresInstance, to: Programs): Promise<Obstacle[]> {
  const found = await instance.admin.rows<{ obstacle: Obstacle }>(OBSTACLES)
  const offered = await extensionNames(to)
  const databases = await instance.admin.rows<{ name: string }>(
    `SELECT datname AS name FROM pg_database WHERE datallowconn AND datconnlimit <> -2`,
  )
  const used = new Set<string>()
  for (const { name } of databases) {
    const read = (admin: AdminSession) => admin.rows<{ name: string }>(EXTENSIONS)
    for (const extension of await instance.withAdmin(name, read)) used.add(extension.name)
  }
  const missing = [...used].filter((name) => !offered.has(name))
  const [needed, { freeBytes }] = [(await instance.sizeBytes()) * DISK_FACTOR, await pool.disk()]
  return [
    ...found.map(({ obstacle }) => obstacle),
    ...missing.map((name) => ({
      type: 'unsupported_extension',
      extension_name: name,
      reason: `Postgres ${to.major} on this host has no extension ${name}: drop it first`,
    })),
    ...(freeBytes < needed
      ? [{ type: 'disk_full', reason: `the host needs ${Math.ceil(needed / 2 ** 20)} MiB of free disk` }]
      : []),
  ]
}

/** Rejects with Refused and the first obstacle if the instance cannot be upgraded to the major version. */
export async function requireUpgradable(pool: InstancePool, instance: PostgresInstance, major: string): Promise<void> {
  const refused = (reason: string) => new Refused([{ setting: 'version', reason }])
  const to = pool.programsOf(major)
  if (Number(major) < Number(instance.record.major)) throw refused(`Postgres ${instance.record.major} is newer`)
  if (instance.record.isPaused) throw refused('the project is paused')
  const [obstacle] = await findObstacles(pool, instance, to)
  if (obstacle) throw refused(obstacle.reason)
}
