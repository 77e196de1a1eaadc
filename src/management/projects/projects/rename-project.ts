import { eq } from 'drizzle-orm'
import { projects } from '../../../model/tables/index.ts'
import type { Writer } from '../../../platform/db/client.ts'

/** Renames a project, or a branch. Fails with 23505 if the organization has another project of this name. */
export async function renameProject(tx: Writer, ref: string, name: string): Promise<void> {
  await tx.update(projects).set({ name }).where(eq(projects.ref, ref))
}
