import { eq } from 'drizzle-orm'
import { organizations, users } from '../../src/model/tables/index.ts'
import type { ControlDb } from '../seed.ts'
import { change } from './change.ts'
import type { Command } from './command.ts'
import { findOrganization, findUser } from './find.ts'

export const accessCommands: Record<string, Command> = {
  'user disable': {
    summary: "Refuse a user's tokens and end the user's database logins.",
    args: ['username'],
    run: (db, [username = '']) => setUser(db, username, new Date()),
  },
  'user enable': {
    summary: 'Allow a disabled user again.',
    args: ['username'],
    run: (db, [username = '']) => setUser(db, username, null),
  },
  'organization disable': {
    summary: 'Refuse every call about an organization and its projects.',
    args: ['slug'],
    run: (db, [slug = '']) => setOrganization(db, slug, new Date()),
  },
  'organization enable': {
    summary: 'Allow a disabled organization again.',
    args: ['slug'],
    run: (db, [slug = '']) => setOrganization(db, slug, null),
  },
}

const verbOf = (disabledAt: Date | null) => (disabledAt ? 'disable' : 'enable')

/** Disables or enables a user. The tokens stay, so that they work again when the user is enabled. */
function setUser(db: ControlDb, username: string, disabledAt: Date | null): Promise<string> {
  return change(db, async ({ tx, trace }) => {
    const { id, disabledAt: before } = await findUser(tx, username)
    if ((before === null) === (disabledAt === null)) return `${username} is ${verbOf(disabledAt)}d already`
    await tx.update(users).set({ disabledAt }).where(eq(users.id, id))
    await trace({ action: `user.${verbOf(disabledAt)}`, detail: { user: id } })
    return `${username} is ${verbOf(disabledAt)}d; the API follows within ten seconds, logins to databases within a minute`
  })
}

/** Disables or enables an organization. While it is disabled, calls about it are refused; its databases and programs keep running. */
function setOrganization(db: ControlDb, slug: string, disabledAt: Date | null): Promise<string> {
  return change(db, async ({ tx, trace }) => {
    const { id, disabledAt: before } = await findOrganization(tx, slug)
    if ((before === null) === (disabledAt === null)) return `${slug} is ${verbOf(disabledAt)}d already`
    await tx.update(organizations).set({ disabledAt }).where(eq(organizations.id, id))
    await trace({ action: `organization.${verbOf(disabledAt)}`, organizationId: id })
    return `${slug} is ${verbOf(disabledAt)}d${disabledAt ? '; its projects keep running, and logins to databases end within a minute' : ''}`
  })
}
