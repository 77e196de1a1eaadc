import { and, eq, isNull } from 'drizzle-orm'
import { organizations, projects, users } from '../../src/model/tables/index.ts'
import type { ControlDb } from '../seed.ts'
import { StartError } from '../start-error.ts'

/** The database, or a transaction on it. */
type Reader = Pick<ControlDb, 'select'>

export async function findUser(db: Reader, username: string) {
  const [user] = await db.select().from(users).where(eq(users.username, username))
  if (!user) throw new StartError(`no user is called "${username}": create it with \`user create\``)
  return user
}

const hasSlug = (slug: string) => and(eq(organizations.slug, slug), isNull(organizations.removedAt))

export async function findOrganization(db: Reader, slug: string) {
  const [organization] = await db.select().from(organizations).where(hasSlug(slug))
  return organization ?? unknownOrganization(slug)
}

/** Finds an organization, also one that was deleted, whose row keeps its slug. */
export async function findOrganizationOrDeleted(db: Reader, slug: string) {
  const [organization] = await db.select().from(organizations).where(eq(organizations.slug, slug))
  return organization ?? unknownOrganization(slug)
}

/** Locks the organization until the transaction ends, so that its plan and members do not change meanwhile. */
export async function lockOrganization(tx: Reader, slug: string) {
  const [organization] = await tx.select().from(organizations).where(hasSlug(slug)).for('no key update')
  return organization ?? unknownOrganization(slug)
}

function unknownOrganization(slug: string): never {
  throw new StartError(`no organization has the slug "${slug}"`)
}

/** Locks the project until the transaction ends, so that no other work on it starts meanwhile. */
export async function lockProject(tx: Reader, ref: string) {
  const where = and(eq(projects.ref, ref), isNull(projects.removedAt))
  const [project] = await tx.select().from(projects).where(where).for('no key update')
  return project ?? unknownProject(ref)
}

export function unknownProject(ref: string): never {
  throw new StartError(`no project has the ref "${ref}"`)
}

/** Throws if the organization has no such project. */
export async function requireProject(db: Reader, organizationId: string, ref: string): Promise<void> {
  const where = and(eq(projects.ref, ref), eq(projects.organizationId, organizationId), isNull(projects.removedAt))
  const [project] = await db.select({ ref: projects.ref }).from(projects).where(where)
  if (!project) throw new StartError(`the organization has no project "${ref}"`)
}
