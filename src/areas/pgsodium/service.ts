import { and, eq } from 'drizzle-orm'
import * as z from 'zod'
import type { ProjectAccess } from '../../auth/access.ts'
import type { Db } from '../../db/client.ts'
import { mutate } from '../../db/mutate.ts'
import { projectSettings } from '../../db/schema/index.ts'
import type { Ctx } from '../../env.ts'
import { seal, unseal } from '../../secrets/seal.ts'
import { lockProject } from '../projects/lock.ts'

const Kept = z.object({ sealed_root_key: z.string() })
const place = (ref: string) => `project_settings/${ref}/pgsodium`

/** The first read makes the key; whoever asks at the same time gets the same. */
export async function getPgsodiumConfig(ctx: Ctx, project: ProjectAccess) {
  const sealed = (await readSealed(ctx.db, project.ref)) ?? (await giveKey(ctx, project))
  return { root_key: await unseal(ctx.config.ENCRYPTION_KEY, sealed, place(project.ref)) }
}

export async function updatePgsodiumConfig(ctx: Ctx, project: ProjectAccess, rootKey: string) {
  const row = await newRow(ctx, project.ref, rootKey)
  await mutate(ctx, async (mutation) => {
    await lockProject(mutation, project.ref)
    await mutation.tx
      .insert(projectSettings)
      .values(row)
      .onConflictDoUpdate({ target: [projectSettings.projectRef, projectSettings.area], set: row })
    await mutation.trace({ ...subject(project), action: 'project.pgsodium.update', detail: { fields: ['root_key'] } })
  })
  return { root_key: rootKey }
}

async function giveKey(ctx: Ctx, project: ProjectAccess): Promise<string> {
  const bytes = crypto.getRandomValues(new Uint8Array(32))
  const row = await newRow(ctx, project.ref, Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join(''))
  return mutate(ctx, async (mutation) => {
    await lockProject(mutation, project.ref)
    const there = await readSealed(mutation.tx, project.ref)
    if (there) return there
    await mutation.tx.insert(projectSettings).values(row)
    await mutation.trace({ ...subject(project), action: 'project.pgsodium.create' })
    return row.value.sealed_root_key
  })
}

async function readSealed(db: Pick<Db, 'select'>, ref: string): Promise<string | undefined> {
  const [row] = await db
    .select({ value: projectSettings.value })
    .from(projectSettings)
    .where(and(eq(projectSettings.projectRef, ref), eq(projectSettings.area, 'pgsodium')))
  return row && Kept.parse(row.value).sealed_root_key
}

const newRow = async ({ config, now }: Ctx, ref: string, rootKey: string) => ({
  projectRef: ref,
  area: 'pgsodium' as const,
  value: { sealed_root_key: await seal(config.ENCRYPTION_KEY, rootKey, place(ref)) },
  updatedAt: now(),
})

const subject = ({ organizationId, ref }: ProjectAccess) => ({ organizationId, projectRef: ref })
