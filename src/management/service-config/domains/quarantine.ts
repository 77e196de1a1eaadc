import { and, eq, gt, lt, ne } from 'drizzle-orm'
import { releasedSubdomains, vanitySubdomains } from '../../../model/tables/index.ts'
import type { Mutation } from '../../kernel/mutate.ts'

/** Clients of the project that gave a subdomain up may still send their credentials there. */
const QUARANTINE_MS = 7 * 86_400_000

const releasedAfter = (now: Date) => new Date(now.getTime() - QUARANTINE_MS)

/** Notes that the project gives its subdomain up, if it has one. */
export async function releaseSubdomain(tx: Mutation['tx'], ref: string, now: Date): Promise<void> {
  await tx.delete(releasedSubdomains).where(lt(releasedSubdomains.releasedAt, releasedAfter(now)))
  const [row] = await tx.select().from(vanitySubdomains).where(eq(vanitySubdomains.projectRef, ref))
  if (!row) return
  const set = { projectRef: ref, releasedAt: now }
  await tx
    .insert(releasedSubdomains)
    .values({ subdomain: row.subdomain, ...set })
    .onConflictDoUpdate({ target: releasedSubdomains.subdomain, set })
}

/** Whether another project gave the subdomain up too short a time ago. */
export async function isQuarantined(
  db: Pick<Mutation['tx'], 'select'>,
  wanted: { subdomain: string; ref: string },
  now: Date,
): Promise<boolean> {
  const { subdomain, projectRef, releasedAt } = releasedSubdomains
  const held = and(eq(subdomain, wanted.subdomain), ne(projectRef, wanted.ref), gt(releasedAt, releasedAfter(now)))
  return (await db.select({ subdomain }).from(releasedSubdomains).where(held)).length > 0
}
