import { and, eq, gt, lt, ne } from 'drizzle-orm'
import { releasedSubdomains, vanitySubdomains } from '../../../model/tables/index.ts'
import type { Mutation } from '../../kernel/mutate.ts'

/** The time for which other projects cannot use a released subdomain: clients may still send credentials to it. */
const QUARANTINE_MS = 7 * 86_400_000
/**
 * The time for which a project must have had a subdomain before its release reserves the name. Otherwise a project could reserve any
 * number of names by changing its own.
 */
const USED_MS_MIN = 86_400_000

const releasedAfter = (now: Date) => new Date(now.getTime() - QUARANTINE_MS)

/** Records the release of the project's subdomain, if it has one and had it for a day. */
export async function releaseSubdomain(tx: Mutation['tx'], ref: string, now: Date): Promise<void> {
  await tx.delete(releasedSubdomains).where(lt(releasedSubdomains.releasedAt, releasedAfter(now)))
  const [row] = await tx.select().from(vanitySubdomains).where(eq(vanitySubdomains.projectRef, ref))
  if (!row) return
  const set = { projectRef: ref, releasedAt: now }
  const isReserved = and(eq(releasedSubdomains.subdomain, row.subdomain), eq(releasedSubdomains.projectRef, ref))
  if (now.getTime() - row.createdAt.getTime() < USED_MS_MIN) {
    // A name that the project had left and taken again stays reserved from its last use on.
    await tx.update(releasedSubdomains).set(set).where(isReserved)
    return
  }
  await tx
    .insert(releasedSubdomains)
    .values({ subdomain: row.subdomain, ...set })
    .onConflictDoUpdate({ target: releasedSubdomains.subdomain, set })
}

/** Whether another project released the subdomain recently. */
export async function isQuarantined(
  db: Pick<Mutation['tx'], 'select'>,
  requested: { subdomain: string; ref: string },
  now: Date,
): Promise<boolean> {
  const { subdomain, projectRef, releasedAt } = releasedSubdomains
  const isReleasedRecently = and(
    eq(subdomain, requested.subdomain),
    ne(projectRef, requested.ref),
    gt(releasedAt, releasedAfter(now)),
  )
  return (await db.select({ subdomain }).from(releasedSubdomains).where(isReleasedRecently)).length > 0
}
