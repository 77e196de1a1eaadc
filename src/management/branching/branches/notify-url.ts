import { eq } from 'drizzle-orm'
import type { Ctx } from '../../../ctx.ts'
import { webhookAssociatedData } from '../../../model/secrets/associated-data.ts'
import { jwtSecretOf } from '../../../model/secrets/project.ts'
import { type BranchRow, projects, webhookEndpoints } from '../../../model/tables/index.ts'
import { skipPending } from '../../../outbound/webhooks/delivery-store.ts'
import { newTimedId } from '../../../platform/db/id.ts'
import { checkDestination, refusalOf } from '../../../platform/net/destination.ts'
import { destinationRules } from '../../../platform/net/egress.ts'
import { seal } from '../../../platform/secrets/seal.ts'
import { invalidField } from '../../kernel/invalid-field.ts'
import type { Mutation } from '../../kernel/mutate.ts'

const EVENT_TYPES = ['v1.project.branch.created', 'v1.project.branch.updated', 'v1.project.branch.removed'] as const

export async function requireNotifyUrl(ctx: Ctx, url: string | null, field: string): Promise<void> {
  if (url === null) return
  const refusal = refusalOf(await checkDestination(url, destinationRules(ctx)))
  if (refusal !== undefined) throw invalidField(field, refusal, 'invalid_destination')
}

/** Sets the webhook endpoint for the events of a branch, which are signed with the JWT secret of the branch. */
export async function setNotifyUrl(
  ctx: Ctx,
  { tx, wake }: Mutation,
  organizationId: string,
  { id: branchId, projectRef, parentRef, notifyUrl }: BranchRow,
): Promise<void> {
  if (notifyUrl === null) return disableEndpoint(ctx, tx, branchId)
  // Pending events go to the new URL.
  const changed = await tx
    .update(webhookEndpoints)
    .set({ url: notifyUrl, enabled: true, failingSince: null })
    .where(eq(webhookEndpoints.branchId, branchId))
    .returning({ id: webhookEndpoints.id })
  for (const { id } of changed) wake(id)
  if (changed.length > 0) return
  const [project] = await tx
    .select({ ref: projects.ref, sealedJwtSecret: projects.sealedJwtSecret })
    .from(projects)
    .where(eq(projects.ref, projectRef))
  if (!project) return
  const id = newTimedId(ctx.now())
  await tx.insert(webhookEndpoints).values({
    id,
    organizationId,
    projectRef: parentRef,
    branchId,
    url: notifyUrl,
    enabled: true,
    eventTypes: [...EVENT_TYPES],
    sealedSecret: await seal(
      ctx.config.ENCRYPTION_KEY,
      await jwtSecretOf({ ...ctx, db: tx }, project),
      webhookAssociatedData(id, 'secret'),
    ),
    createdBy: ctx.actor.userId,
    createdAt: ctx.now(),
  })
}

/** Disables the endpoint of a branch. It stays for the next URL until the branch is removed. */
async function disableEndpoint({ databaseNow }: Ctx, tx: Mutation['tx'], branchId: string): Promise<void> {
  const disabled = await tx
    .update(webhookEndpoints)
    .set({ enabled: false })
    .where(eq(webhookEndpoints.branchId, branchId))
    .returning({ id: webhookEndpoints.id })
  for (const { id } of disabled) await skipPending(tx, databaseNow, id)
}
