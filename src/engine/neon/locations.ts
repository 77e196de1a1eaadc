import type { EngineStates } from '../driver-states.ts'
import { EngineUnavailable } from '../engine.ts'

/** The place of a project's database at Neon. */
export interface Site {
  projectId: string
  branchId: string
  endpointId: string
  host: string
}

/** A read-only endpoint of a project's branch, called at Neon by its identifier. */
export interface NeonReplica {
  identifier: string
  endpointId: string
  host: string
  isReady: boolean
}

/** Driver state stored with a project from its first request to Neon on. */
export interface NeonState {
  /** The Neon project that it has, or that it is to have a branch in. */
  projectId?: string
  /** A branch of another project's: the Neon project stays when it goes. */
  isBranch: boolean
  /** The parent's history of migrations before its schema was asked for; absent where the data came along. */
  history?: string | undefined
  site?: Site
  /** Its database has been prepared: nothing of it is made again. */
  isReady: boolean
  /** Since when it has been as it is to be, in ISO 8601: it can be put back to no earlier moment. */
  readySince?: string
  replicas?: NeonReplica[]
}

export type NeonStates = EngineStates<NeonState>

const KEPT_MS = 30_000
const KEPT_MAX = 5_000

export type Sites = ReturnType<typeof keepSites>

/** Looked up once in a while, as each request for SQL needs it: an isolate may know what has just been replaced. */
const known = new Map<string, { site: Site; until: number }>()

export function keepSites(states: NeonStates) {
  async function find(ref: string): Promise<Site | undefined> {
    const kept = known.get(ref)
    if (kept && kept.until > Date.now()) return kept.site
    known.delete(ref)
    const state = await states.read(ref)
    if (!state?.site) return undefined
    if (known.size >= KEPT_MAX) known.clear()
    known.set(ref, { site: state.site, until: Date.now() + KEPT_MS })
    return state.site
  }

  return {
    find,
    async require(ref: string): Promise<Site> {
      const site = await find(ref)
      if (!site) throw new EngineUnavailable('The database does not exist', { code: '3D000' })
      return site
    },
    read: states.read,
    forget: (ref: string) => known.delete(ref),
    async write(ref: string, state: NeonState | undefined): Promise<void> {
      known.delete(ref)
      await states.write(ref, state)
    },
  }
}
