import { sql } from 'drizzle-orm'
import { setNewest } from '../../platform/bounded-map.ts'
import { rowsOf } from '../../platform/db/client.ts'
import { createRowCache, type Reader, type RowKey } from '../../platform/db/row-cache.ts'

interface Host extends RowKey {
  /** Null where no project has the name. */
  projectRef: string | null
}

/** One by one: planners take so few for many, and would read them all. */
const read = ({ db }: Reader, wanted: readonly RowKey[]): Promise<Host[]> =>
  rowsOf<Host>(
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

/** By what a host is called: of a vanity subdomain its label, else the whole name. */
const hosts = createRowCache<Host>({
  read,
  isMissing: ({ projectRef }) => projectRef === null,
  charactersOf: ({ ref }) => ref.length,
  entriesMax: 10_000,
  charactersMax: 1_000_000,
})

const key = (name: string): RowKey => ({ ref: name, name: '' })

const LED_MAX = 10_000
/** Names that have led to a project. */
const led = new Map<string, true>()

/** Looking up another name may lead nowhere: names of hosts are the caller's choice. */
export const hasLed = (name: string): boolean => led.has(name)

/** The project that the name leads to; undefined where it leads to none. `now` in epoch milliseconds. */
export async function projectOfHost(
  createReader: () => Reader,
  name: string,
  now: number,
): Promise<string | undefined> {
  const { projectRef } = (await hosts.get(createReader, key(name), now)) ?? {}
  if (!projectRef) return undefined
  setNewest(led, name, true, LED_MAX)
  return projectRef
}

/** For who has changed where it leads: this isolate goes by the change at once, others within a second. */
export const forgetHost = (name: string): void => hosts.invalidate(name)
