import { BoundedMap } from '../../platform/bounded-map.ts'
import type { EngineStates } from '../driver-states.ts'
import { databaseMissing } from '../engine-errors.ts'

/** The place of a project's database at Neon. */
export interface Site {
  projectId: string
  branchId: string
  endpointId: string
  host: string
}

/** A read-only endpoint of a project's branch; its name at Neon is the identifier. */
export interface NeonReplica {
  identifier: string
  endpointId: string
  host: string
  isReady: boolean
  hasFailed?: boolean | undefined
}

/** Driver state stored with a project, from the first request to Neon on. */
export interface NeonState {
  /** The Neon project, or the one in which the branch is created. */
  projectId?: string
  /** Whether it is a branch in another project's Neon project, which must not be removed with it. */
  isBranch: boolean
  /** Digest of the parent's migration history before its schema was copied; absent if the data was copied too. */
  history?: string | undefined
  site?: Site
  /** Whether the database is prepared, so that creation is complete. */
  isReady: boolean
  /** When it became ready, in ISO 8601; the earliest time for a point-in-time restore. */
  readySince?: string
  replicas?: NeonReplica[]
}

export type NeonStates = EngineStates<NeonState>

const CACHE_MS = 30_000
const CACHE_MAX = 5_000

export type Sites = ReturnType<typeof siteCache>

/** Cache of sites, which each SQL request needs. An entry may be outdated. */
const cache = new BoundedMap<string, { site: Site; until: number }>(CACHE_MAX)

export function siteCache(states: NeonStates) {
  async function find(ref: string): Promise<Site | undefined> {
    const cached = cache.get(ref)
    if (cached && cached.until > Date.now()) return cached.site
    cache.delete(ref)
    const state = await states.read(ref)
    if (!state?.site) return undefined
    cache.set(ref, { site: state.site, until: Date.now() + CACHE_MS })
    return state.site
  }

  return {
    find,
    async require(ref: string): Promise<Site> {
      const site = await find(ref)
      if (!site) throw databaseMissing()
      return site
    },
    read: states.read,
    forget: (ref: string) => cache.delete(ref),
    async write(ref: string, state: NeonState | undefined): Promise<void> {
      cache.delete(ref)
      await states.write(ref, state)
    },
  }
}
