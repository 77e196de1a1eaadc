import { type SQL, sql } from 'drizzle-orm'
import {
  gitBranches,
  organizations,
  privateLinkAssociations,
  projects,
  projectTasks,
  users,
  webhookDeliveries,
  webhookEndpoints,
  workerTasks,
} from '../../model/tables/index.ts'
import { rowsOf, type Writer } from '../../platform/db/client.ts'

interface Counted {
  count: number
}

/** Current state of the installation in the control database. */
export interface Gauges {
  organizations: number
  users: number
  projects: (Counted & { status: string; isBranch: boolean })[]
  /** Work that has not ended; `oldestDueSeconds` is the age of the oldest pending work that is due. */
  tasks: (Counted & { queue: string; kind: string; state: string; oldestDueSeconds: number | null })[]
  endpoints: { enabled: number; disabled: number }
  connections: (Counted & { state: string })[]
  connectionsMax: number
  databaseBytes: number
  /** Sum over the projects whose objects have been counted. */
  storageBytes: number
}

interface Source {
  db: Pick<Writer, 'execute'>
  databaseNow: SQL
}

/** Reads all gauges in one statement. Finished work is not counted, because it may have millions of rows. */
export async function readGauges({ db, databaseNow: now }: Source): Promise<Gauges> {
  const overdue = (dueAt: unknown) =>
    sql`extract(epoch from ${now} - min(${dueAt}) filter (where ${dueAt} <= ${now}))::float8`
  const tasksOf = (queue: string, table: typeof projectTasks | typeof workerTasks) => sql`
    select ${queue}::text as queue, kind, state, count(*)::int as count,
      case when state = 'pending' then ${overdue(table.dueAt)} end as "oldestDueSeconds"
    from ${table} where state in ('pending', 'running') group by kind, state`
  const leasedOf = (kind: string, table: typeof gitBranches | typeof privateLinkAssociations) => sql`
    select 'project', ${kind}::text, state, count(*)::int, case when state = 'pending' then ${overdue(sql`due_at`)} end
    from (
      select due_at, case when lease_until > ${now} then 'running' else 'pending' end as state
      from ${table} where due_at is not null
    ) leased group by state`
  const [row] = await rowsOf<{ gauges: Gauges }>(
    db,
    sql`
    with task as (
      ${tasksOf('project', projectTasks)}
      union all ${tasksOf('worker', workerTasks)}
      union all ${leasedOf('git_branch', gitBranches)}
      union all ${leasedOf('private_link', privateLinkAssociations)}
      union all
      select 'webhook', 'delivery', state, count(*)::int, case when state = 'pending' then ${overdue(sql`next_at`)} end
      from (
        select next_at, case when lease_until > ${now} then 'running' else 'pending' end as state
        from ${webhookDeliveries} where status = 'pending'
      ) delivery group by state
    ), project as (
      select status, parent_ref is not null as "isBranch", count(*)::int as count, sum(storage_bytes)::float8 as "storageBytes"
      from ${projects} where removed_at is null group by 1, 2
    ), connection as (
      select coalesce(state, 'unknown') as state, count(*)::int as count
      from pg_stat_activity where datname = current_database() group by 1
    )
    select json_build_object(
      'organizations', (select count(*) from ${organizations} where removed_at is null), 'users', (select count(*) from ${users}),
      'projects', (select coalesce(json_agg(p), '[]') from project p),
      'tasks', (select coalesce(json_agg(t), '[]') from task t),
      'endpoints', (select json_build_object('enabled', count(*) filter (where enabled),
        'disabled', count(*) filter (where not enabled)) from ${webhookEndpoints}),
      'connections', (select coalesce(json_agg(c), '[]') from connection c),
      'connectionsMax', current_setting('max_connections')::int,
      'databaseBytes', pg_database_size(current_database()),
      'storageBytes', (select coalesce(sum("storageBytes"), 0) from project)
    ) as gauges`,
  )
  if (!row) throw new Error('the gauges query returned no row')
  return row.gauges
}
