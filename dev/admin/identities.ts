import { randomUUID } from 'node:crypto'
import { and, eq, isNull, or } from 'drizzle-orm'
import { hashToken } from '../../src/access/token.ts'
import { SCOPES, type Scope } from '../../src/model/scopes.ts'
import { accessTokens, oauthGrants, users } from '../../src/model/tables/index.ts'
import { type ControlDb, issueToken, upsertUser } from '../seed.ts'
import { StartError } from '../start-error.ts'
import { change } from './change.ts'
import { type Command, DAY_MS } from './command.ts'
import { findUser } from './find.ts'
import { acceptAll } from './invitations.ts'

export const identityCommands: Record<string, Command> = {
  'user create': {
    summary: 'Create a user.',
    args: ['username', 'email'],
    run: async (db, [username = '', email = '']) => {
      if (!/^[^@\s]+@[^@\s]+$/.test(email)) throw new StartError(`${email} is not an e-mail address`)
      const { id, isNew } = await createUser(db, username, email)
      // An existing user accepts invitations one by one, with `invitation accept`.
      const lines = isNew ? await acceptAll(db, { id, username, primaryEmail: email }) : [`${username} existed already`]
      return [`user ${id}`, ...lines].join('\n')
    },
  },
  'user list': {
    summary: 'List all users.',
    args: [],
    run: async (db) => {
      const rows = await db.select().from(users).orderBy(users.username)
      return rows.map(userLine).join('\n') || 'no users'
    },
  },
  'token create': {
    summary: 'Issue an access token; it is printed once.',
    args: ['username'],
    options: '[--name text] [--scopes a,b] [--days n]',
    run: (db, [username = ''], { name = 'admin', scopes, days }) =>
      createToken(db, username, {
        name,
        ...(scopes !== undefined && { scopes: readScopes(scopes) }),
        ...(days !== undefined && { expiresAt: new Date(Date.now() + readDays(days) * DAY_MS) }),
      }),
  },
  'token list': {
    summary: 'List the tokens of a user.',
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
    summary: 'Revoke a token.',
    args: ['token or its id'],
    run: (db, [token = '']) => revokeToken(db, token),
  },
}

const createUser = (db: ControlDb, username: string, email: string) =>
  change(db, async ({ tx, trace }) => {
    const user = await upsertUser(tx, username, email)
    if (user.isNew) await trace({ action: 'user.create', detail: { user: user.id } })
    return user
  })

type NewToken = Pick<typeof accessTokens.$inferInsert, 'name' | 'scopes' | 'expiresAt'>

const createToken = (db: ControlDb, username: string, fields: NewToken): Promise<string> =>
  change(db, async ({ tx, trace }) => {
    const { id: userId } = await findUser(tx, username)
    const id = randomUUID()
    await trace({ action: 'token.create', detail: { user: userId, token: id, ...fields } })
    return issueToken(tx, { id, userId, ...fields })
  })

async function revokeToken(db: ControlDb, token: string): Promise<string> {
  const isId = /^[0-9a-f-]{36}$/.test(token)
  const which = isId ? eq(accessTokens.id, token) : eq(accessTokens.hash, await hashToken(token))
  return change(db, async ({ tx, trace }) => {
    const [revoked] = await tx
      .update(accessTokens)
      .set({ revokedAt: new Date() })
      .where(and(which, isNull(accessTokens.revokedAt)))
      .returning()
    if (!revoked) throw new StartError('no such token, or it has been revoked already')
    // Grants that a user approved with the token end too, and the grant of an application's token.
    const { id, userId, organizationId, oauthGrantId: grant } = revoked
    await tx
      .delete(oauthGrants)
      .where(or(eq(oauthGrants.approvedBy, id), grant ? eq(oauthGrants.id, grant) : undefined))
    await trace({ action: 'token.revoke', organizationId, detail: { user: userId, token: id } })
    return 'revoked; the API refuses it within ten seconds'
  })
}

export function readScopes(text: string): Scope[] {
  return text.split(',').map((name) => {
    const scope = SCOPES.find((known) => known === name.trim())
    if (!scope) throw new StartError(`${name} is not a scope: must be one of ${SCOPES.join(', ')}`)
    return scope
  })
}

function readDays(text: string): number {
  const days = Number(text)
  if (!(days > 0)) throw new StartError(`--days ${text} is not a number of days`)
  return days
}

const userLine = ({ id, username, primaryEmail, disabledAt }: typeof users.$inferSelect) =>
  `${id}  ${username}  ${primaryEmail}${disabledAt ? '  disabled' : ''}`

const tokenLine = ({ id, name, scopes, expiresAt, revokedAt, oauthAppId }: typeof accessTokens.$inferSelect) => {
  const state = revokedAt ? 'revoked' : expiresAt && expiresAt < new Date() ? 'expired' : 'valid'
  return `${id}  ${state.padEnd(7)}  ${name}  ${scopes?.join(',') ?? 'all scopes'}${oauthAppId ? '  (application)' : ''}`
}
