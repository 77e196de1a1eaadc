import { and, eq, isNotNull, isNull } from 'drizzle-orm'
import { drizzle } from 'drizzle-orm/node-postgres'
import pg from 'pg'
import { hashToken, newAccessToken } from '../src/access/token.ts'
import { accessTokens, memberRoles, organizations, users } from '../src/model/tables/index.ts'
import { StartError } from './start-error.ts'

export type ControlDb = ReturnType<typeof openControlDatabase>['db']

/** The database, or a transaction on it. */
type Writer = Pick<ControlDb, 'select' | 'insert'>

/** Connects to the control database from Node, for the seed and the admin commands; the Worker connects differently. */
export function openControlDatabase(url: string) {
  const pool = new pg.Pool({ connectionString: url, max: 2 })
  // Ignored: the next query replaces an idle session that has ended, and fails itself if it cannot.
  pool.on('error', () => {})
  return { db: drizzle(pool), close: () => pool.end() }
}

interface Owner {
  username: string
  email: string
  organization: { slug: string; name: string }
  plan: (typeof organizations.$inferSelect)['plan']
}

const OWNER: Owner = {
  username: 'owner',
  email: 'owner@localhost.localdomain',
  organization: { slug: 'my-organization', name: 'My organization' },
  plan: 'enterprise',
}

interface Seed {
  controlUrl: string
  /** The token of the last start, which no longer works. */
  knownToken?: string | undefined
  /** Receives messages about changes that one would not expect of a start. */
  onLine?(line: string): void
}

/**
 * Creates the first user with an organization and a new token. An existing user and organization stay as they are: an
 * organization that has other owners by then keeps them.
 */
export async function seedOwner(
  { controlUrl, knownToken, onLine = () => {} }: Seed,
  owner: Owner = OWNER,
): Promise<{ access_token: string; organization_slug: string }> {
  const { db, close } = openControlDatabase(controlUrl)
  try {
    const { username, organization, plan } = owner
    const { slug } = organization
    const { id: userId } = await upsertUser(db, username, owner.email)
    if (knownToken) onLine(`The access token is no longer valid: the user ${username} has a new one.`)
    const [created] = await db
      .insert(organizations)
      .values({ ...organization, plan })
      // An organization that the operator has deleted is created again, empty.
      .onConflictDoUpdate({
        target: organizations.slug,
        set: { removedAt: null, disabledAt: null },
        setWhere: isNotNull(organizations.removedAt),
      })
      .returning()
    const [found] = await db.select().from(organizations).where(eq(organizations.slug, slug))
    if (!found) throw new Error(`the organization ${slug} was not seeded`)
    const { id: organizationId } = found
    const owners = await db.select().from(memberRoles).where(ownersOf(organizationId))
    if (owners.length === 0) {
      await db
        .insert(memberRoles)
        .values({ organizationId, userId, role: 'owner' })
        .onConflictDoUpdate({
          target: [memberRoles.organizationId, memberRoles.userId, memberRoles.projectRef],
          set: { role: 'owner' },
        })
      if (!created) onLine(`The organization ${slug} had no owner: ${username} owns it again.`)
    } else if (!owners.some((one) => one.userId === userId)) {
      onLine(`The organization ${slug} stays with its owners; ${username} is no longer one of them.`)
    }
    return { access_token: await issueToken(db, { userId, name: 'npm start' }), organization_slug: slug }
  } finally {
    await close()
  }
}

const ownersOf = (organizationId: string) =>
  and(eq(memberRoles.organizationId, organizationId), eq(memberRoles.role, 'owner'), isNull(memberRoles.projectRef))

export async function upsertUser(db: Writer, username: string, email: string) {
  const inserted = await db.insert(users).values({ username, primaryEmail: email }).onConflictDoNothing().returning()
  const [user] = await db.select().from(users).where(eq(users.username, username))
  if (!user) throw new StartError(`another user has the e-mail address ${email}`)
  if (user.primaryEmail !== email)
    throw new StartError(`the user ${username} exists already, with the e-mail address ${user.primaryEmail}`)
  return { id: user.id, isNew: inserted.length > 0 }
}

type TokenFields = Pick<typeof accessTokens.$inferInsert, 'id' | 'userId' | 'name' | 'scopes' | 'expiresAt'>

/** The clear token is returned once; only its hash is stored. */
export async function issueToken(db: Writer, fields: TokenFields): Promise<string> {
  const token = newAccessToken()
  await db.insert(accessTokens).values({ ...fields, hash: await hashToken(token) })
  return token
}
