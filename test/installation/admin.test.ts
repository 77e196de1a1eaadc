import { execFile } from 'node:child_process'
import { randomBytes, randomUUID } from 'node:crypto'
import { promisify } from 'node:util'
import { desc, eq } from 'drizzle-orm'
import { afterEach, describe, expect, inject, it, vi } from 'vitest'
import { readCommand } from '../../dev/admin/commands.ts'
import { auditLog, jitGrants, memberRoles, organizations, users, webhookEvents } from '../../src/model/tables/index.ts'
import { signClaims } from '../../src/services/gateway/credentials.ts'
import { admin } from '../support/admin.ts'
import { addMember, control, newOrganization, newUser, type TestOrganization, tokenOf } from '../support/api.ts'
import { insertLogins, openLogins } from '../support/members.ts'
import { byRefresh, newTokens, registerApp } from '../support/oauth.ts'
import { newProject } from '../support/projects.ts'
import { insertProject } from '../support/webhooks.ts'

const run = promisify(execFile)
const env = { ...process.env, DATABASE_URL: inject('controlUrl'), ENCRYPTION_KEY: inject('encryptionKey') }

async function newPerson() {
  const id = await newUser()
  const [user] = await control.select().from(users).where(eq(users.id, id))
  if (!user) throw new Error('no user')
  return user
}

/** Returns the organization's newest event and audit entry, without the fields that differ from run to run. */
async function newest({ id }: TestOrganization) {
  const [event] = await control
    .select()
    .from(webhookEvents)
    .where(eq(webhookEvents.organizationId, id))
    .orderBy(desc(webhookEvents.id))
  const [entry] = await control
    .select()
    .from(auditLog)
    .where(eq(auditLog.organizationId, id))
    .orderBy(desc(auditLog.createdAt))
  return {
    event: event && { type: event.type, projectRef: event.projectRef, payload: event.payload },
    entry: entry && { action: entry.action, actorUserId: entry.actorUserId, detail: entry.detail },
  }
}

const countEvents = ({ id }: TestOrganization) => control.$count(webhookEvents, eq(webhookEvents.organizationId, id))

describe('an option of another command', () => {
  it.each([
    ['project list acme --project abc', '--project', 'project list <slug>'],
    ['connection remove --project abc --dry-run', '--dry-run', 'connection remove --project ref'],
    ['oauth-apps delete abc --dry-run', '--dry-run', 'oauth-apps delete <client id>'],
    ['organization plan acme pro --name x', '--name', 'organization plan <slug> <'],
  ])('is refused: %s', (line, option, usage) => {
    const name = line.split(' ', 2).join(' ')
    const message = `${name} does not take ${option}\n\nnpm run admin -- ${usage}`
    expect(() => readCommand(line.split(' '))).toThrow(message)
  })
})

describe('organization create', () => {
  afterEach(() => void vi.unstubAllEnvs())

  const create = (username: string, ...options: string[]) =>
    admin('organization', 'create', 'Theirs', '--owner', username, ...options)

  it('uses the given plan, or else that of the environment, and records an audit entry', async () => {
    const { id, username } = await newPerson()
    for (const [setting, options, plan] of [
      ['', [], 'enterprise'],
      ['pro', [], 'pro'],
      ['pro', ['--plan', 'free'], 'free'],
    ] as const) {
      vi.stubEnv('DEFAULT_PLAN', setting)
      const slug = (await create(username, ...options)).replace('organization ', '')
      const [row] = await control.select().from(organizations).where(eq(organizations.slug, slug))
      expect(row).toMatchObject({ name: 'Theirs', plan })
      const entries = await control
        .select()
        .from(auditLog)
        .where(eq(auditLog.organizationId, String(row?.id)))
      expect(entries).toMatchObject([
        { action: 'organization.create', actorUserId: null, projectRef: null, detail: { owner: id, plan } },
      ])
    }
  })

  it('refuses an unknown plan and a missing owner', async () => {
    const { id, username } = await newPerson()
    await expect(async () => create(username, '--plan', 'entreprise')).rejects.toThrow(
      /^entreprise is not a plan: must be one of free, /,
    )
    await expect(async () => create(username, '--plan', '')).rejects.toThrow('is not a plan')
    await expect(async () => admin('organization', 'create', 'Theirs')).rejects.toThrow('--owner is missing')
    vi.stubEnv('DEFAULT_PLAN', 'entreprise')
    await expect(async () => create(username)).rejects.toThrow('DEFAULT_PLAN=entreprise is not a plan')
    expect(await control.$count(memberRoles, eq(memberRoles.userId, id))).toBe(0)
  })
})

describe('organization plan', () => {
  it('publishes an upgrade and a downgrade without an actor, and nothing if the plan stays', async () => {
    const organization = await newOrganization()
    const { slug } = organization
    expect(await admin('organization', 'plan', slug, 'team')).toBe(`${slug} is on the plan team`)
    expect(await newest(organization)).toEqual({
      event: {
        type: 'v1.organization.billing.plan.downgraded',
        projectRef: null,
        payload: { organization_slug: slug, project_ref: null, billing: { plan: 'team' }, actor: null },
      },
      entry: { action: 'organization.plan', actorUserId: null, detail: { from: 'enterprise', to: 'team' } },
    })
    expect(await admin('organization', 'plan', slug, 'platform')).toContain('platform')
    expect(await newest(organization)).toMatchObject({
      event: { type: 'v1.organization.billing.plan.upgraded', payload: { billing: { plan: 'platform' } } },
    })
    expect(await admin('organization', 'plan', slug, 'platform')).toBe(`${slug} is on the plan platform already`)
    expect(await countEvents(organization)).toBe(2)
    const [row] = await control.select().from(organizations).where(eq(organizations.slug, slug))
    expect(row?.plan).toBe('platform')
  })
})

describe('member set and member remove', () => {
  it('publish a new member, a changed role, a role in a project, and the removal', async () => {
    const organization = await newOrganization()
    const { slug } = organization
    const ref = await newProject(organization)
    const { id, username, primaryEmail } = await newPerson()
    const member = (name: string, projects: { ref: string }[] | null) => ({
      organization_slug: slug,
      project_ref: null,
      member: { user_id: id, primary_email: primaryEmail, role: { name, projects } },
      actor: null,
    })
    const newestEvent = async () => (await newest(organization)).event

    await admin('member', 'set', slug, username, 'developer')
    expect(await newest(organization)).toEqual({
      event: { type: 'v1.organization.member.added', projectRef: null, payload: member('Developer', null) },
      entry: { action: 'member.set', actorUserId: null, detail: { user: id, role: 'developer' } },
    })
    const afterFirst = await countEvents(organization)
    expect(await admin('member', 'set', slug, username, 'developer')).toContain('already')
    expect(await countEvents(organization)).toBe(afterFirst)

    await admin('member', 'set', slug, username, 'read-only')
    expect(await newestEvent()).toMatchObject({
      type: 'v1.organization.member.role.updated',
      payload: member('Read-only', null),
    })
    await admin('member', 'set', slug, username, 'administrator', '--project', ref)
    expect(await newestEvent()).toMatchObject({
      type: 'v1.organization.member.role.assigned',
      payload: member('Administrator', [{ ref }]),
    })
    await admin('member', 'set', slug, username, 'developer', '--project', ref)
    expect(await newestEvent()).toMatchObject({
      type: 'v1.organization.member.role.updated',
      payload: member('Developer', [{ ref }]),
    })
    await admin('member', 'remove', slug, username)
    expect(await newest(organization)).toEqual({
      event: { type: 'v1.organization.member.removed', projectRef: null, payload: member('Read-only', null) },
      entry: { action: 'member.remove', actorUserId: null, detail: { user: id } },
    })
    expect(await countEvents(organization)).toBe(afterFirst + 4)
  })

  it('follow the rules of the API for roles that include each other, and for a role in one project', async () => {
    const organization = await newOrganization()
    const { slug } = organization
    const { id, username } = await newPerson()
    const [a, b] = [await insertProject(organization), await insertProject(organization)]
    const branch = await insertProject(organization, { parentRef: a })
    const inProject = (ref: string, role: string) => admin('member', 'set', slug, username, role, '--project', ref)
    const held = async () =>
      (await control.select().from(memberRoles).where(eq(memberRoles.userId, id)))
        .map(({ role, projectRef }) => `${role} ${projectRef}`)
        .sort()

    await admin('member', 'set', slug, username, 'administrator')
    await inProject(branch, 'read-only')
    expect(await held()).toEqual([`read-only ${branch}`])
    expect(await inProject(a, 'developer')).toBe(
      `${username} is developer in ${a}, and no longer read-only in ${branch}`,
    )
    await inProject(b, 'developer')
    expect(await held()).toEqual([`developer ${a}`, `developer ${b}`].sort())
    expect(await inProject(b, 'developer')).toContain('already')
    await admin('member', 'set', slug, username, 'read-only')
    expect(await held()).toEqual(['read-only null'])

    await inProject(a, 'developer')
    const remove = () => admin('member', 'remove', slug, username, '--project', a)
    expect(await remove()).toBe(`${username} is no longer developer in ${a}`)
    expect(await held()).toEqual(['read-only null'])
    await expect(remove()).rejects.toThrow(`${username} has no role in ${a} alone`)
    await admin('member', 'remove', slug, username)
    await inProject(a, 'developer')
    expect(await remove()).toBe(`${username} is no longer developer in ${a}, nor a member of ${slug}`)
    expect((await newest(organization)).event).toMatchObject({ type: 'v1.organization.member.removed' })
  })

  it('remove a member of projects, and name the highest role and its projects', async () => {
    const organization = await newOrganization()
    const { slug } = organization
    const { id, username } = await newPerson()
    await admin('member', 'set', slug, username, 'developer', '--project', await newProject(organization))
    expect((await newest(organization)).event).toMatchObject({ type: 'v1.organization.member.added' })
    await addMember(organization.id, id, 'administrator', 'b'.repeat(20))
    await addMember(organization.id, id, 'administrator', 'a'.repeat(20))
    await admin('member', 'remove', slug, username)
    expect((await newest(organization)).event?.payload).toMatchObject({
      member: { role: { name: 'Administrator', projects: [{ ref: 'a'.repeat(20) }, { ref: 'b'.repeat(20) }] } },
    })
  })

  it("end the member's logins in databases and the approvals for applications that depended on the role", async () => {
    const organization = await newOrganization()
    const { slug } = organization
    const { id, username } = await newPerson()
    const ref = await insertProject(organization)
    await addMember(organization.id, id, 'developer')
    const caller = await tokenOf(id)
    const app = await registerApp(organization)
    const { refresh_token } = await newTokens(app, { ...organization, owner: caller })
    await insertLogins(id, [ref])
    await control.insert(jitGrants).values({ projectRef: ref, userId: id, roles: [], updatedAt: new Date() })
    await admin('member', 'set', slug, username, 'read-only')
    expect(await openLogins(id)).toEqual([`${ref} jit`])
    await admin('member', 'remove', slug, username)
    expect(await openLogins(id)).toEqual([])
    expect(await control.$count(jitGrants, eq(jitGrants.userId, id))).toBe(0)
    await addMember(organization.id, id, 'developer')
    expect((await byRefresh(app, refresh_token)).body).toMatchObject({ error: 'invalid_grant' })
  })

  it('make one new member when two commands run at the same time', async () => {
    const organization = await newOrganization()
    const { username } = await newPerson()
    const set = () => admin('member', 'set', organization.slug, username, 'developer')
    expect((await Promise.all([set(), set()])).filter((text) => text.includes('already'))).toHaveLength(1)
    expect(await countEvents(organization)).toBe(1)
  })
})

describe('project jwt-secret', () => {
  it('prints the secret with which a backend signs tokens of its own users, and records an audit entry', async () => {
    const organization = await newOrganization()
    const ref = await newProject(organization)
    const { stdout } = await run('node', ['dev/admin.ts', 'project', 'jwt-secret', ref], { env })
    const secret = stdout.trim()
    const user = { role: 'authenticated', sub: randomUUID() }
    const read = async (jwtSecret: string) => {
      const token = await signClaims({ jwtSecret }, user, 60, new Date())
      const reply = await fetch(`${inject('baseUrl')}/p/${ref}/storage/v1/bucket`, {
        headers: { authorization: `Bearer ${token}` },
      })
      return { status: reply.status, body: await reply.json() }
    }
    expect(await read(secret)).toEqual({ status: 200, body: [] })
    expect(await read('another')).toMatchObject({ status: 400, body: { message: 'signature verification failed' } })
    const entries = await control.select().from(auditLog).where(eq(auditLog.projectRef, ref))
    const entry = entries.find(({ action }) => action === 'project.jwt_secret.show')
    expect(entry).toMatchObject({ organizationId: organization.id, actorUserId: null })
    expect(JSON.stringify(entries)).not.toContain(secret)
  })

  it('requires the encryption key of the installation', async () => {
    const ref = await newProject(await newOrganization())
    const show = (key: string) =>
      run('node', ['dev/admin.ts', 'project', 'jwt-secret', ref], { env: { ...env, ENCRYPTION_KEY: key } })
    await expect(show('')).rejects.toMatchObject({ stderr: expect.stringContaining('Set ENCRYPTION_KEY') })
    const other = `k1:${randomBytes(32).toString('base64')}`
    await expect(show(other)).rejects.toMatchObject({ stderr: expect.stringMatching(/^ENCRYPTION_KEY is not the one/) })
    const entries = await control.select().from(auditLog).where(eq(auditLog.projectRef, ref))
    expect(entries.map(({ action }) => action)).not.toContain('project.jwt_secret.show')
  })
})

describe('a failing command', () => {
  it.each([
    [['what'], 'npm run admin'],
    [['project', 'jwt-secret', 'nowhere'], 'no project has the ref "nowhere"'],
  ])('%j prints the reason and fails', async (args, text) => {
    const command = run('node', ['dev/admin.ts', ...args], { env })
    await expect(command).rejects.toMatchObject({ code: 1, stdout: '', stderr: expect.stringContaining(text) })
  })

  it.each([
    [['webhooks', 'status', '--organisation', 'x'], "Unknown option '--organisation'"],
    [['webhooks', 'status', '--organization', 'nowhere'], 'no organization has the slug "nowhere"'],
    [['member', 'remove', 'nowhere', 'x'], 'no organization has the slug "nowhere"'],
  ])('%j prints the reason', async (args, text) => {
    await expect(admin(...args)).rejects.toThrow(text)
  })

  it.each([
    ['password', 'of-another', 'The database refuses the password'],
    ['port', '1', 'Cannot reach the database'],
  ] as const)('prints one line about a wrong %s in DATABASE_URL', async (part, value, text) => {
    const url = new URL(env.DATABASE_URL)
    url[part] = value
    const command = run('node', ['dev/admin.ts', 'webhooks', 'status'], { env: { ...env, DATABASE_URL: url.href } })
    const line = new RegExp(`^${text}.*Its address is that of DATABASE_URL\\.\n$`)
    await expect(command).rejects.toMatchObject({ code: 1, stderr: expect.stringMatching(line) })
  })
})
