import { sql } from 'drizzle-orm'
import { rowsOf } from '../../platform/db/client.ts'
import { createRowCache, type Reader, type RowKey } from '../../platform/db/row-cache.ts'

interface HostRow extends RowKey {
  /** Null if no project has the name. */
  projectRef: string | null
}

/** Looks up each name with a lateral join. The planner overestimates the rows of a plain join and would scan both tables. */
const read = ({ db }: Reader, wanted: readonly RowKey[]): Promise<HostRow[]> =>
  rowsOf<HostRow>(
    db,
    sql`select w.ref, w.name, found.project_ref as "projectRef"
      from json_to_recordset(${JSON.stringify(wanted)}::json) as w (ref text, name text)
      left join lateral (
        (select project_ref from vanity_subdomains where subdomain = w.ref)
        union all
        (select project_ref from custom_hostnames where hostname = w.ref and status = '5_services_reconfigured')
        limit 1
      ) found on true`,
  )

/** Keyed by name: the label of a vanity subdomain, else the whole hostname. */
const hosts = createRowCache<HostRow>({
  read,
  isMissing: ({ projectRef }) => projectRef === null,
  charactersOf: ({ ref }) => ref.length,
  entriesMax: 10_000,
  charactersMax: 1_000_000,
})

const key = (name: string): RowKey => ({ ref: name, name: '' })

/** The project that the name belongs to; undefined if it belongs to none. `now` in epoch milliseconds. */
export async function projectOfHost(
  createReader: () => Reader,
  name: string,
  now: number,
): Promise<string | undefined> {
  const { projectRef } = (await hosts.get(createReader, key(name), now)) ?? {}
  return projectRef ?? undefined
}

/** Called after the project of a name changed. This isolate uses the change at once, others within a second. */
export const forgetHost = (name: string): void => hosts.invalidate(name)
