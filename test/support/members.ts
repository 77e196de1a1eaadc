import { and, eq, gt } from 'drizzle-orm'
import { accessTokens, temporaryLogins, users } from '../../src/model/tables/index.ts'
import { randomLetters } from '../../src/platform/http/common-values.ts'
import { addMember, type Caller, control, newUser, type TestOrganization, tokenOf } from './api.ts'

export async function personOf(id: string) {
  const [user] = await control.select().from(users).where(eq(users.id, id))
  if (!user) throw new Error('no user')
  return user
}

/** Makes a user with a token, who is a member if a role is given. */
export async function newPerson({ id }: TestOrganization, role?: Parameters<typeof addMember>[2], ref?: string) {
  const user = await personOf(await newUser())
  if (role) await addMember(id, user.id, role, ref)
  return { ...user, caller: await tokenOf(user.id) }
}

const refsOf = (refs?: readonly string[]) => (refs ? { projects: refs.map((ref) => ({ ref })) } : {})

export const assign = (caller: Caller, slug: string, userId: string, role: string, refs?: readonly string[]) =>
  caller.patch(`/v2/organizations/${slug}/members/${userId}/roles`, {
    data: { type: 'organization_member_role', attributes: { role, ...refsOf(refs) } },
  })

export const remove = (caller: Caller, slug: string, userId: string) =>
  caller.delete(`/v2/organizations/${slug}/members/${userId}`)

const type = 'organization_invitation'
export const invitation = (email: string, role = 'developer', refs?: readonly string[]) => ({
  type,
  attributes: { email, role, ...refsOf(refs) },
})

export const invite = (caller: Caller, slug: string, ...data: object[]) =>
  caller.post(`/v2/organizations/${slug}/members/invitations`, { data })

export const cancel = (caller: Caller, slug: string, ...emails: string[]) =>
  caller.delete(`/v2/organizations/${slug}/members/invitations`, {
    data: emails.map((email) => ({ type, attributes: { email } })),
  })

/** Returns the roles that the list shows for a member. */
export async function rolesOf(caller: Caller, slug: string, { username }: { username: string }) {
  const { body } = await caller.get(`/v2/organizations/${slug}/members?filter[username]=${username}`)
  return body.data[0]?.attributes.roles
}

/** Inserts two logins in each project, of the command line and of a grant: only their rows, without roles in a database. */
export async function insertLogins(userId: string, refs: readonly string[]): Promise<void> {
  const [token] = await control.select().from(accessTokens).where(eq(accessTokens.userId, userId))
  if (!token) throw new Error('no token')
  const now = Date.now()
  const common = { tokenId: token.id, createdAt: new Date(now), expiresAt: new Date(now + 600_000) }
  await control.insert(temporaryLogins).values(
    refs.flatMap((projectRef) => [
      { ...common, projectRef, role: `cli_login_${randomLetters(8)}`, grantedRole: 'owner' },
      { ...common, projectRef, role: `jit_login_${randomLetters(8)}`, grantedRole: 'anon', userId },
    ]),
  )
}

/** Returns the logins that have not ended. */
export async function openLogins(userId: string): Promise<string[]> {
  const rows = await control
    .select({ ref: temporaryLogins.projectRef, grantee: temporaryLogins.userId })
    .from(temporaryLogins)
    .innerJoin(accessTokens, eq(accessTokens.id, temporaryLogins.tokenId))
    .where(and(eq(accessTokens.userId, userId), gt(temporaryLogins.expiresAt, new Date())))
  return rows.map(({ ref, grantee }) => `${ref} ${grantee ? 'jit' : 'cli'}`)
}
