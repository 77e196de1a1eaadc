import { randomUUID } from 'node:crypto'
import { desc, eq, sql } from 'drizzle-orm'
import { describe, expect, it } from 'vitest'
import { accessTokens, auditLog, users } from '../../src/model/tables/index.ts'
import { admin } from '../support/admin.ts'
import { control, newOrganization, newUser, type TestOrganization } from '../support/api.ts'

const LONG_AGO = '2001-01-01'

async function insertEntries({ id: organizationId }: TestOrganization, count: number, at: Date, actorUserId?: string) {
  const entry = (n: number) => ({
    action: 'thing.change',
    organizationId,
    projectRef: n % 2 ? 'abcdefghijklmnopqrst' : null,
    detail: { n },
    requestId: `request-${n}`,
    createdAt: new Date(at.getTime() + n),
    ...(actorUserId && { actorUserId }),
  })
  await control.insert(auditLog).values(Array.from({ length: count }, (_, n) => entry(n)))
}

/** Returns the entries about a user: action, organization and detail. */
async function entriesAbout(userId: string) {
  const rows = await control
    .select({ action: auditLog.action, organizationId: auditLog.organizationId, detail: auditLog.detail })
    .from(auditLog)
    .where(sql`${auditLog.detail} ->> 'user' = ${userId}`)
    .orderBy(auditLog.createdAt)
  return rows
}

async function listed(...options: string[]): Promise<Record<string, unknown>[]> {
  const text = await admin('audit', 'list', ...options)
  return text === 'no entries' ? [] : text.split('\n').map((line) => JSON.parse(line))
}

describe('user create, token create and token revoke', () => {
  it('record an audit entry for each change, without the token', async () => {
    const username = `audited-${randomUUID()}`
    const create = () => admin('user', 'create', username, `${username}@example.com`)
    const [, userId = ''] = (await create()).split(' ')
    await create()
    const token = await admin('token', 'create', username, '--name', 'reader', '--scopes', 'projects:read')
    await admin('token', 'revoke', token)
    await expect(admin('token', 'revoke', token)).rejects.toThrow('no such token')
    const [row] = await control.select().from(accessTokens).where(eq(accessTokens.userId, userId))
    const issued = { user: userId, token: row?.id }
    expect(await entriesAbout(userId)).toEqual([
      { action: 'user.create', organizationId: null, detail: { user: userId } },
      {
        action: 'token.create',
        organizationId: null,
        detail: { ...issued, name: 'reader', scopes: ['projects:read'] },
      },
      { action: 'token.revoke', organizationId: null, detail: issued },
    ])
  })

  it("name the organization of an application's token", async () => {
    const organization = await newOrganization()
    const { userId, id: organizationId } = organization
    const values = { userId, organizationId, name: 'of an organization', hash: randomUUID() }
    const [row] = await control.insert(accessTokens).values(values).returning()
    const token = String(row?.id)
    await admin('token', 'revoke', token)
    expect(await entriesAbout(userId)).toEqual([
      { action: 'token.revoke', organizationId, detail: { user: userId, token } },
    ])
  })
})

describe('audit list', () => {
  it('shows the entries of a deleted organization', async () => {
    const { slug } = await newOrganization()
    await admin('organization', 'delete', slug, '--yes')
    expect(await listed('--organization', slug)).toMatchObject([{ action: 'organization.delete', organization: slug }])
  })

  it('prints one line for each entry, the newest first', async () => {
    const organization = await newOrganization()
    const id = await newUser()
    const [user] = await control.select().from(users).where(eq(users.id, id))
    const at = new Date('2026-01-02T03:04:05.000Z')
    await insertEntries(organization, 2, at, id)
    const options = ['--organization', organization.slug, '--since', '2026-01-01', '--until', '2026-01-03']

    expect(await listed(...options)).toEqual([
      {
        at: '2026-01-02T03:04:05.001Z',
        action: 'thing.change',
        user: user?.username,
        organization: organization.slug,
        project: 'abcdefghijklmnopqrst',
        detail: { n: 1 },
        request: 'request-1',
      },
      {
        at: '2026-01-02T03:04:05.000Z',
        action: 'thing.change',
        user: user?.username,
        organization: organization.slug,
        detail: { n: 0 },
        request: 'request-0',
      },
    ])
    expect(await listed(...options, '--project', 'abcdefghijklmnopqrst')).toHaveLength(1)
    expect(await listed(...options, '--user', user?.username ?? '')).toHaveLength(2)
    expect(await listed(...options.slice(0, 2), '--since', '2026-01-03')).toEqual([])
  })

  it('continues after the last entry if there are more', async () => {
    const organization = await newOrganization()
    await insertEntries(organization, 1_500, new Date('2026-01-02T00:00:00Z'))
    const options = ['--organization', organization.slug, '--since', '2026-01-01']
    const first = await listed(...options)
    expect(first).toHaveLength(1_000)
    const rest = await listed(...options, '--until', String(first.at(-1)?.at))
    expect(rest).toHaveLength(501)
    expect(rest[0]).toEqual(first.at(-1))
  })

  it.each([
    [['--since', 'yesterday'], '--since yesterday is not a time'],
    [['--until', '2026-02-31'], '--until 2026-02-31 is not a time'],
    [['--since', '2026-02-02', '--until', '2026-02-01'], '--since 2026-02-02 is not before 2026-02-01'],
    [['--organization', 'nobody'], 'no organization has the slug "nobody"'],
    [['--user', 'no-body'], 'no user is called "no-body"'],
  ])('refuses %j', async (options, message) => {
    await expect(admin('audit', 'list', ...options)).rejects.toThrow(message)
  })
})

describe('audit purge', () => {
  it('removes entries older than the given time, and records that in the log itself', async () => {
    const organization = await newOrganization()
    const at = new Date(`${LONG_AGO}T00:00:00Z`)
    await insertEntries(organization, 3, at)
    await insertEntries(organization, 1, new Date())
    const left = () => control.$count(auditLog, eq(auditLog.organizationId, organization.id))

    const until = `${LONG_AGO}T00:00:00.002Z`
    expect(await admin('audit', 'purge', '--until', until, '--dry-run')).toBe(
      'Nothing was changed.\nentries that would be removed: 2',
    )
    expect(await left()).toBe(4)
    expect(await admin('audit', 'purge', '--until', until)).toBe('entries removed: 2')
    expect(await left()).toBe(2)
    const [entry] = await control
      .select()
      .from(auditLog)
      .where(eq(auditLog.action, 'audit.purge'))
      .orderBy(desc(auditLog.createdAt))
    expect(entry).toMatchObject({ organizationId: null, actorUserId: null, detail: { until, entries: 2 } })
    await control.delete(auditLog).where(eq(auditLog.organizationId, organization.id))
  })

  it('refuses a missing, malformed or future time', async () => {
    await expect(admin('audit', 'purge')).rejects.toThrow('--until is missing')
    await expect(admin('audit', 'purge', '--until', randomUUID())).rejects.toThrow('is not a time')
    await expect(admin('audit', 'purge', '--until', '2999-01-01')).rejects.toThrow('is in the future')
  })
})
