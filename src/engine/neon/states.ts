import { eq, isNotNull } from 'drizzle-orm'
import type { Db } from '../../db/client.ts'
import { projects } from '../../db/schema/index.ts'
import type { NeonState, NeonStates } from './sites.ts'

/** In the projects' own rows, whether they still stand or have been removed. */
export const neonStates = (db: Db): NeonStates => ({
  async read(ref) {
    const [row] = await db.select({ state: projects.engineState }).from(projects).where(eq(projects.ref, ref))
    return stateIn(row?.state)
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

/** Nobody but this driver writes the column. */
export const stateIn = (column: unknown): NeonState | undefined => (column ?? undefined) as NeonState | undefined
