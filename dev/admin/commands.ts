import { and, eq, isNull } from 'drizzle-orm'
import { PLANS, ROLES } from '../../src/auth/roles.ts'
import { SCOPES, type Scope } from '../../src/auth/scopes.ts'
import { hashToken } from '../../src/auth/token.ts'
import { accessTokens, memberRoles, organizations, projects, users } from '../../src/db/schema/index.ts'
import { randomLetters } from '../../src/http/values.ts'
import { type ControlDb, issueToken, upsertUser } from '../seed.ts'
import { StartError } from '../start-error.ts'

interface Options {
  scopes?: string | undefined
  days?: string | undefined
  name?: string | undefined
  owner?: string | undefined
  project?: string | undefined
}

interface Command {
  args: readonly string[]
  options?: string
  /** The text to print. */
  run(db: ControlDb, args: string[], options: Options): Promise<string>
}

const DAY_MS = 86_400_000

export const COMMANDS: Record<string, Command> = {
  'user create': {
    args: ['username', 'email'],
    run: async (db, [username = '', email = '']) => {
      if (!/^[^@\s]+@[^@\s]+$/.test(email)) throw new StartError(`${email} is not an e-mail address`)
      return `user ${await upsertUser(db, username, email)}`
    },
  },
  'token create': {
    args: ['username'],
    options: '[--name text] [--scopes a,b] [--days n]',
    run: async (db, [username = ''], { name = 'admin', scopes, days }) =>
      issueToken(db, {
        userId: (await findUser(db, username)).id,
        name,
        scopes: scopes === undefined ? undefined : readScopes(scopes),
        expiresAt: days === undefined ? undefined : new Date(Date.now() + readDays(days) * DAY_MS),
      }),
  },
  'token list': {
    args: ['username'],
    run: async (db, [username = '']) => {
      const { id } = await findUser(db, username)
      const rows = await db
        .select()
        .from(accessTokens)
        .where(eq(accessTokens.userId, id))
        .orderBy(accessTokens.createdAt)
      return rows.map(tokenLine).join('\n') || 'no tokens'
    },
  },
  'token revoke': {
    args: ['token or its id'],
    run: async (db, [token = '']) => {
      const isId = /^[0-9a-f-]{36}$/.test(token)
      const which = isId ? eq(accessTokens.id, token) : eq(accessTokens.hash, await hashToken(token))
      const revoked = await db
        .update(accessTokens)
        .set({ revokedAt: new Date() })
        .where(and(which, isNull(accessTokens.revokedAt)))
        .returning({ id: accessTokens.id })
      if (revoked.length === 0) throw new StartError('no such token, or it is revoked already')
      return 'revoked; the API refuses it within ten seconds'
    },
  },
  'organization create': {
    args: ['name'],
    options: '--owner username',
    run: async (db, [name = ''], { owner = '' }) => {
      const { id: userId } = await findUser(db, owner)
      const slug = randomLetters()
      const plan = PLANS.find((known) => known === process.env.DEFAULT_PLAN) ?? 'enterprise'
      await db.transaction(async (tx) => {
        const [row] = await tx.insert(organizations).values({ slug, name, plan }).returning()
        if (row) await tx.insert(memberRoles).values({ organizationId: row.id, userId, role: 'owner' })
      })
      return `organization ${slug}`
    },
  },
  'organization plan': {
    args: ['slug', PLANS.join('|')],
    run: async (db, [slug = '', plan = '']) => {
      const known = PLANS.find((name) => name === plan)
      if (!known) throw new StartError(`${plan} is no plan: ${PLANS.join(', ')}`)
      const { id } = await findOrganization(db, slug)
      await db.update(organizations).set({ plan: known }).where(eq(organizations.id, id))
      return `${slug} is on the plan ${known}`
    },
  },
  'member set': {
    args: ['slug', 'username', ROLES.join('|')],
    options: '[--project ref]',
    run: async (db, [slug = '', username = '', role = ''], { project }) => {
      const known = ROLES.find((name) => name === role)
      if (!known) throw new StartError(`${role} is no role: ${ROLES.join(', ')}`)
      const { id: organizationId } = await findOrganization(db, slug)
      const { id: userId } = await findUser(db, username)
      if (project) await findProject(db, organizationId, project)
      await db
        .insert(memberRoles)
        .values({ organizationId, userId, role: known, projectRef: project })
        .onConflictDoUpdate({
          target: [memberRoles.organizationId, memberRoles.userId, memberRoles.projectRef],
          set: { role: known },
        })
      return `${username} is ${known} in ${project ?? slug}`
    },
  },
  'member remove': {
    args: ['slug', 'username'],
    run: async (db, [slug = '', username = '']) => {
      const { id: organizationId } = await findOrganization(db, slug)
      const { id: userId } = await findUser(db, username)
      const where = and(eq(memberRoles.organizationId, organizationId), eq(memberRoles.userId, userId))
      const removed = await db.delete(memberRoles).where(where).returning({ id: memberRoles.id })
      if (removed.length === 0) throw new StartError(`${username} is no member of ${slug}`)
      return `${username} is no longer a member of ${slug}`
    },
  },
  'project list': {
    args: ['slug'],
    run: async (db, [slug = '']) => {
      const { id } = await findOrganization(db, slug)
      const rows = await db
        .select()
        .from(projects)
        .where(and(eq(projects.organizationId, id), isNull(projects.removedAt)))
        .orderBy(projects.name)
      return (
        rows
          .map(({ ref, status, name, statusReason }) => `${ref}  ${status}  ${name}  ${statusReason ?? ''}`)
          .join('\n') || 'no projects'
      )
    },
  },
}

const lines = Object.entries(COMMANDS).map(([name, { args, options = '' }]) =>
  `  ${name} ${args.map((arg) => `<${arg}>`).join(' ')} ${options}`.trimEnd(),
)
export const USAGE = `npm run admin -- <command>\n\n${lines.join('\n')}`

async function findUser(db: ControlDb, username: string) {
  const [user] = await db.select().from(users).where(eq(users.username, username))
  if (!user) throw new StartError(`no user is called "${username}": npm run admin -- user create`)
  return user
}

async function findOrganization(db: ControlDb, slug: string) {
  const [organization] = await db.select().from(organizations).where(eq(organizations.slug, slug))
  if (!organization) throw new StartError(`no organization has the slug "${slug}"`)
  return organization
}

async function findProject(db: ControlDb, organizationId: string, ref: string) {
  const where = and(eq(projects.ref, ref), eq(projects.organizationId, organizationId), isNull(projects.removedAt))
  const [project] = await db.select({ ref: projects.ref }).from(projects).where(where)
  if (!project) throw new StartError(`the organization has no project "${ref}"`)
}

function readScopes(text: string): Scope[] {
  return text.split(',').map((name) => {
    const scope = SCOPES.find((known) => known === name.trim())
    if (!scope) throw new StartError(`${name} is no scope: ${SCOPES.join(', ')}`)
    return scope
  })
}

function readDays(text: string): number {
  const days = Number(text)
  if (!(days > 0)) throw new StartError(`--days ${text} is not a number of days`)
  return days
}

const tokenLine = ({ id, name, scopes, expiresAt, revokedAt, oauthAppId }: typeof accessTokens.$inferSelect) => {
  const state = revokedAt ? 'revoked' : expiresAt && expiresAt < new Date() ? 'expired' : 'valid'
  return `${id}  ${state.padEnd(7)}  ${name}  ${scopes?.join(',') ?? 'all scopes'}${oauthAppId ? '  (application)' : ''}`
}
