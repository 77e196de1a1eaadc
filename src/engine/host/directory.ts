import { eq, sql } from 'drizzle-orm'
import { hostAssociatedData } from '../../model/secrets/associated-data.ts'
import { hosts as hostRows, projects } from '../../model/tables/index.ts'
import { BoundedMap } from '../../platform/bounded-map.ts'
import type { Db } from '../../platform/db/client.ts'
import { unseal } from '../../platform/secrets/seal.ts'
import { databaseMissing, EngineUnavailable } from '../engine-errors.ts'

/** The address at which clients reach the projects of a host. */
export interface ClientAddress {
  databaseHost: string
  databasePort: number
  /** If set, each project is also available at `db.{ref}.{databaseDomain}`. */
  databaseDomain?: string | undefined
}

/** A database host: where its daemon answers, and where clients reach its projects. */
export interface HostAddress extends ClientAddress {
  id: string
  /** Base URL of the daemon, for its control API and for SQL. */
  url: string
  /** Key that authenticates the control plane to the daemon. */
  key: string
  /** Whether the host accepts no new projects. */
  isDraining?: boolean
}

/** The hosts of this installation. */
export interface HostDirectory {
  of(ref: string): Promise<HostAddress>
  /** All hosts, never from the cache: a drained host must get no new project. */
  all(): Promise<HostAddress[]>
  get(id: string): Promise<HostAddress>
  /** Caches the host of a project; undefined drops the entry. */
  cacheHost(ref: string, id: string | undefined): void
  /** The host of the settings. Its address is not stored with its projects. */
  readonly local?: HostAddress | undefined
}

/** Id of the host of the settings. */
export const LOCAL = 'local'

const CACHE_MS = 30_000
const CACHED_PROJECTS_MAX = 10_000

interface DirectoryConfig {
  db: Db
  encryptionKey: string
  /** The host of the settings. */
  local?: HostAddress | undefined
}

/** The hosts of the table `hosts` and of the settings. Look-ups of a single host are cached for 30 s. */
export function hostDirectory({ db, encryptionKey, local }: DirectoryConfig): HostDirectory {
  let cached: { hosts: ReadonlyMap<string, HostAddress>; until: number } | undefined
  const hostIds = new BoundedMap<string, { id: string; until: number }>(CACHED_PROJECTS_MAX)

  async function loadHosts(): Promise<ReadonlyMap<string, HostAddress>> {
    const rows = await db.select().from(hostRows)
    const stored = await Promise.all(rows.map((row) => addressOf(row, encryptionKey)))
    const hosts = new Map([...(local ? [local] : []), ...stored].map((host) => [host.id, host]))
    cached = { hosts, until: Date.now() + CACHE_MS }
    return hosts
  }

  const hosts = async () => (cached && cached.until > Date.now() ? cached.hosts : loadHosts())

  async function get(id: string): Promise<HostAddress> {
    const found = (await hosts()).get(id) ?? (await loadHosts()).get(id)
    if (!found) throw new EngineUnavailable(`unknown database host ${id}`)
    return found
  }

  function cacheHost(ref: string, id: string | undefined): void {
    if (id === undefined) hostIds.delete(ref)
    else hostIds.set(ref, { id, until: Date.now() + CACHE_MS })
  }

  async function hostIdOf(ref: string): Promise<string> {
    const entry = hostIds.get(ref)
    if (entry && entry.until > Date.now()) return entry.id
    const [row] = await db
      .select({ id: sql<string | null>`${projects.engineState} ->> 'host'` })
      .from(projects)
      .where(eq(projects.ref, ref))
    if (!row?.id) throw databaseMissing()
    cacheHost(ref, row.id)
    return row.id
  }

  return {
    async of(ref) {
      const [first, ...others] = (await hosts()).values()
      // Called for every SQL request: with one host no look-up is needed.
      return first && others.length === 0 ? first : get(await hostIdOf(ref))
    },
    all: async () => [...(await loadHosts()).values()],
    get,
    cacheHost,
    local,
  }
}

async function addressOf(row: typeof hostRows.$inferSelect, encryptionKey: string): Promise<HostAddress> {
  const { name, url, sealedKey, databaseHost, databasePort, databaseDomain, state } = row
  return {
    id: name,
    url,
    key: await unseal(encryptionKey, sealedKey, hostAssociatedData(name)),
    databaseHost,
    databasePort,
    databaseDomain: databaseDomain ?? undefined,
    isDraining: state === 'draining',
  }
}
