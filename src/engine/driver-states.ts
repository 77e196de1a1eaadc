import { eq, isNotNull } from 'drizzle-orm'
import { projects } from '../model/tables/index.ts'
import type { Db } from '../platform/db/client.ts'

/** Keeps a driver's state of each project; `undefined` for none. */
export interface EngineStates<State> {
  read(ref: string): Promise<State | undefined>
  write(ref: string, state: State | undefined): Promise<void>
  /** Of all that have one. */
  refs(): Promise<string[]>
}

/** In the projects' own rows, whether they still stand or have been removed. */
export const engineStates = <State>(db: Db): EngineStates<State> => ({
  async read(ref) {
    const [row] = await db.select({ state: projects.engineState }).from(projects).where(eq(projects.ref, ref))
    return stateIn<State>(row?.state)
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

/** Nobody but the driver at hand writes the column. */
export const stateIn = <State>(column: unknown): State | undefined => (column ?? undefined) as State | undefined
