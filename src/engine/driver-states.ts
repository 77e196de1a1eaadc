import { eq, isNotNull } from 'drizzle-orm'
import { projects } from '../model/tables/index.ts'
import type { Writer } from '../platform/db/client.ts'

/** Stores the driver's state of each project; `undefined` = none. */
export interface EngineStates<State> {
  read(ref: string): Promise<State | undefined>
  write(ref: string, state: State | undefined): Promise<void>
  /** The refs of all projects that have a state. */
  refs(): Promise<string[]>
}

/** Stores the states in the rows of `projects`, including those of removed projects. */
export const engineStates = <State>(db: Writer): EngineStates<State> => ({
  async read(ref) {
    const [row] = await db.select({ state: projects.engineState }).from(projects).where(eq(projects.ref, ref))
    return driverState<State>(row?.state)
  },
  async write(ref, state) {
    await db
      .update(projects)
      .set({ engineState: state ?? null })
      .where(eq(projects.ref, ref))
  },
  async refs() {
    const rows = await db.select({ ref: projects.ref }).from(projects).where(isNotNull(projects.engineState))
    return rows.map(({ ref }) => ref)
  },
})

interface WithReplicas {
  replicas?: { identifier: string; hasFailed?: boolean | undefined }[]
}

/** Records in the driver's state that a replica could not be created; it is listed until it is removed. */
export async function failReplica(db: Writer, ref: string, identifier: string): Promise<void> {
  const states = engineStates<WithReplicas>(db)
  const state = await states.read(ref)
  const replicas = state?.replicas?.map((each) =>
    each.identifier === identifier ? { ...each, hasFailed: true } : each,
  )
  if (state) await states.write(ref, { ...state, replicas })
}

/** The state in the column `engine_state`. The cast is safe, because only the configured driver writes the column. */
export const driverState = <State>(column: unknown): State | undefined => (column ?? undefined) as State | undefined
