import { eq, isNotNull } from 'drizzle-orm'
import type pg from 'pg'
import { afterEach, beforeAll, beforeEach, describe, expect, inject, it, onTestFinished } from 'vitest'
import { issueToken } from '../../../dev/seed.ts'
import { hashToken } from '../../../src/access/token.ts'
import {
  accessTokens,
  auditLog,
  memberRoles,
  projects,
  temporaryLogins,
  users,
} from '../../../src/model/tables/index.ts'
import { randomLetters } from '../../../src/platform/http/common-values.ts'
import { callHost } from '../../host/call-host.ts'
import { adminClient, adminRows } from '../../instances.ts'
import {
  addMember,
  as,
  type Caller,
  control,
  newApp,
  newMember,
  newOrganization,
  newUser,
  type TestOrganization,
  tick,
  tokenOf,
  workerLogs,
} from '../../support/api.ts'
import { untilBlocked } from '../../support/blocked.ts'
import { hasEnded, newProject, ownerClient, PASSWORD, runSql, untilGone, untilStatus } from '../../support/projects.ts'

let organization: TestOrganization
let ref: string
beforeAll(async () => {
  organization = await newOrganization()
  ref = await newProject(organization)
})

/** Makes a new owner for each test: rate limits count by user and project. */
beforeEach(async () => {
  organization.owner = await newMember(organization, 'owner')
  organization.userId = await userOf(organization.owner)
})

const open: pg.Client[] = []
afterEach(async () => {
  await Promise.all(open.splice(0).map((client) => client.end().catch(() => {})))
})

async function connect(user: string, password: string, options: pg.ClientConfig = {}): Promise<pg.Client> {
  const client = ownerClient('', { user, password, ...options })
  await client.connect()
  open.push(client)
  return client
}

/** Returns the roles of temporary logins in the instance, also those without a row. */
const rolesOf = async (project: string) =>
  (
    await adminRows<{ rolname: string }>(
      project,
      `select rolname from pg_roles where rolname ~ '^(cli|jit)_login_' order by 1`,
    )
  ).map(({ rolname }) => rolname)

interface LoginRole {
  /** The user name with which clients log in. */
  user: string
  role: string
  password: string
  ttl_seconds: number
}
async function cliLogin(caller: Caller, project: string, readOnly = false): Promise<LoginRole> {
  const reply = await caller.post(`/v1/projects/${project}/cli/login-role`, { read_only: readOnly })
  expect(reply).toMatchObject({ status: 201 })
  return { ...reply.body, user: `${reply.body.role}.${project}` }
}

/** Adds rows of 48 logins of the caller, two fewer than the limit. */
async function addLogins(caller: Caller, project: string): Promise<void> {
  const isCallers = eq(accessTokens.hash, await hashToken(caller.token ?? ''))
  const [token] = await control.select().from(accessTokens).where(isCallers)
  const row = { projectRef: project, grantedRole: 'owner', createdAt: new Date(), tokenId: token?.id ?? null }
  await control.insert(temporaryLogins).values(
    Array.from({ length: 48 }, (_, n) => ({
      ...row,
      role: `cli_login_${project.slice(0, 6)}${String.fromCharCode(97 + Math.floor(n / 26), 97 + (n % 26))}`,
      expiresAt: new Date(Date.now() + 60_000),
    })),
  )
}

describe('POST /v1/projects/{ref}/cli/login-role', () => {
  it('makes a login that can be used at once and expires', async () => {
    const login = await cliLogin(organization.owner, ref)
    expect(login).toEqual({
      user: `${login.role}.${ref}`,
      role: expect.stringMatching(/^cli_login_[a-z]{8}$/),
      password: expect.stringMatching(/^Pw-[0-9a-f-]{36}$/),
      ttl_seconds: 1800,
    })
    const client = await connect(login.user, login.password)
    const { rows } = await client.query('select current_user::text as acts, session_user::text as came')
    expect(rows).toEqual([{ acts: 'postgres', came: login.role }])
    const [role] = await adminRows<{ until: Date }>(
      ref,
      'select rolvaliduntil as until from pg_roles where rolname = $1',
      [login.role],
    )
    expect(Math.abs((role?.until.getTime() ?? 0) - Date.now() - 1_800_000)).toBeLessThan(60_000)
  })

  it("makes the project's owner the owner of what the login creates", async () => {
    const { user, password } = await cliLogin(organization.owner, ref)
    const client = await connect(user, password)
    await client.query('create schema made; create table made.t (n int); create function made.f() returns int return 1')
    const owners = `select relowner::regrole::text as v from pg_class where oid = 'made.t'::regclass
      union all select proowner::regrole::text from pg_proc where proname = 'f'
      union all select nspowner::regrole::text from pg_namespace where nspname = 'made'`
    expect((await client.query(owners)).rows).toEqual(Array(3).fill({ v: 'postgres' }))
    expect((await runSql(organization.owner, ref, 'drop schema made cascade')).status).toBe(201)
  })

  it("removes what it still owns, and the owner's objects stay", async () => {
    const { user, role, password } = await cliLogin(organization.owner, ref)
    const client = await connect(user, password)
    await client.query(`create schema kept; grant all on schema kept to ${role}; set role none;
      create table kept.t (n int); insert into kept.t values (7); select lo_create(4711)`)
    expect((await organization.owner.delete(`/v1/projects/${ref}/cli/login-role`)).status).toBe(200)
    expect(await rolesOf(ref)).toEqual([])
    const left = `select n, (select tableowner from pg_tables where schemaname = 'kept') as owner from kept.t`
    expect((await runSql(organization.owner, ref, left)).body).toEqual([{ n: 7, owner: 'postgres' }])
    await runSql(organization.owner, ref, 'drop schema kept cascade; select lo_unlink(4711)')
  })

  it('is refused after it expires', async () => {
    const hourAgo = organization.owner.at(new Date(Date.now() - 3_600_000))
    const { user, password } = await cliLogin(hourAgo, ref)
    await expect(connect(user, password)).rejects.toThrow(/password authentication failed/)
  })

  it('reads everything and writes nothing if it is read-only', async () => {
    await runSql(
      organization.owner,
      ref,
      `create table public.facts (n int); insert into public.facts values (1);
       alter table public.facts enable row level security; create schema if not exists app; create table app.more (n int)`,
    )
    const { user, password } = await cliLogin(organization.owner, ref, true)
    const client = await connect(user, password)
    expect((await client.query('select n from public.facts')).rows).toEqual([{ n: 1 }])
    expect((await client.query('select n from app.more')).rows).toEqual([])
    const statements = [
      'insert into public.facts values (2)',
      'create table public.mine (n int)',
      'create schema mine',
      'truncate public.facts',
      'set role postgres',
      'set role supabase_read_only_user',
      `alter role supabase_read_only_user password 'mine'`,
      `alter role postgres password 'mine'`,
    ]
    for (const statement of statements) await expect(client.query(statement), statement).rejects.toThrow()
    await client.query('set default_transaction_read_only = off')
    for (const statement of statements) {
      await expect(client.query(statement), statement).rejects.toThrow(/permission denied/)
    }
  })

  it.each([
    [{}, 'body.read_only'],
    [{ read_only: 'yes' }, 'body.read_only'],
    [{ read_only: null }, 'body.read_only'],
  ])('refuses %j by name and creates nothing', async (body, field) => {
    const before = await rolesOf(ref)
    const reply = await organization.owner.post(`/v1/projects/${ref}/cli/login-role`, body)
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining(field) } })
    expect(await rolesOf(ref)).toEqual(before)
  })

  it('does not reveal its password', async () => {
    const { role, password } = await cliLogin(organization.owner, ref)
    const [row] = await control.select().from(temporaryLogins).where(eq(temporaryLogins.role, role))
    expect(row).toMatchObject({ projectRef: ref, userId: null, readOnly: false })
    const audit = await control.select().from(auditLog).where(eq(auditLog.projectRef, ref))
    expect(JSON.stringify([row, audit])).not.toContain(password)
    expect((await workerLogs()).join('\n')).not.toContain(password)
    expect(audit.map(({ action }) => action)).toContain('project.login.create')
  })

  it("replaces the caller's oldest unused login beyond a limit", async () => {
    const project = await newProject(organization)
    const used = await cliLogin(organization.owner, project)
    await cliLogin(organization.owner, project)
    const session = await connect(used.user, used.password)
    await addLogins(await newMember(organization, 'developer'), project)
    const latest = await cliLogin(organization.owner, project)
    expect(await rolesOf(project)).toEqual([used.role, latest.role].sort())
    expect((await session.query('select 1 as v')).rows).toEqual([{ v: 1 }])
    await connect(latest.user, latest.password)
    const reply = await organization.owner.post(`/v1/projects/${project}/cli/login-role`, { read_only: false })
    expect(reply).toMatchObject({ status: 409, body: { message: expect.stringContaining('50') } })
    expect(await rolesOf(project)).toEqual([used.role, latest.role].sort())
  })

  it("refuses a paused project, and does not replace others' logins", async () => {
    const project = await newProject(organization)
    await addLogins(organization.owner, project)
    const more = (caller: Caller) => caller.post(`/v1/projects/${project}/cli/login-role`, { read_only: false })
    const replies = await Promise.all(Array.from({ length: 6 }, () => more(organization.owner)))
    expect(replies.map(({ status }) => status)).toEqual(Array(6).fill(201))
    expect(await rolesOf(project)).toHaveLength(6)
    expect(await control.$count(temporaryLogins, eq(temporaryLogins.projectRef, project))).toBe(50)
    expect(await more(await newMember(organization, 'developer'))).toMatchObject({ status: 409 })
    await organization.owner.delete(`/v1/projects/${project}/cli/login-role`)
    const { user, password } = await cliLogin(organization.owner, project)
    const client = await connect(user, password)
    await organization.owner.post(`/v1/projects/${project}/pause`)
    await untilStatus(organization.owner, project, 'INACTIVE')
    await hasEnded(client)
    const paused = await organization.owner.post(`/v1/projects/${project}/cli/login-role`, { read_only: false })
    expect(paused.status).toBe(409)
    expect((await organization.owner.delete(`/v1/projects/${project}/cli/login-role`)).status).toBe(200)
    await organization.owner.post(`/v1/projects/${project}/restore`)
    await untilStatus(organization.owner, project, 'ACTIVE_HEALTHY')
    await tick()
    expect(await rolesOf(project)).toEqual([])
  })

  it('requires the right to write', async () => {
    const path = `/v1/projects/${ref}/cli/login-role`
    const statuses = async (caller: Caller) => [
      (await caller.post(path, { read_only: true })).status,
      (await caller.delete(path)).status,
    ]
    expect(await statuses(await newMember(organization, 'read-only'))).toEqual([403, 403])
    expect(await statuses(await tokenOf(await newUser()))).toEqual([404, 404])
    expect(await statuses((await newApp(organization, ['database:read'])).caller)).toEqual([403, 403])
    expect(await statuses(await newMember(organization, 'developer'))).toEqual([201, 200])
  })
})

describe('DELETE /v1/projects/{ref}/cli/login-role', () => {
  it('ends all of them with their sessions, and none of another project', async () => {
    const other = await newProject(organization)
    const theirs = await cliLogin(organization.owner, other)
    const logins = [await cliLogin(organization.owner, ref), await cliLogin(organization.owner, ref, true)]
    const sessions = await Promise.all(logins.map(({ user, password }) => connect(user, password)))
    const stays = [await connect(theirs.user, theirs.password), await connect(`postgres.${ref}`, PASSWORD)]
    const reply = await organization.owner.delete(`/v1/projects/${ref}/cli/login-role`)
    expect(reply).toMatchObject({ status: 200, body: { message: 'ok' } })
    for (const session of sessions) await hasEnded(session)
    for (const session of stays) expect((await session.query('select 1 as v')).rows).toEqual([{ v: 1 }])
    expect(await rolesOf(ref)).toEqual([])
    expect(await control.select().from(temporaryLogins).where(eq(temporaryLogins.projectRef, ref))).toEqual([])
    expect(await rolesOf(other)).toEqual([theirs.role])
    expect((await organization.owner.delete(`/v1/projects/${ref}/cli/login-role`)).body).toEqual({ message: 'ok' })
    await organization.owner.delete(`/v1/projects/${other}`)
    await untilGone(organization.owner, other)
    await expect(connect(theirs.user, theirs.password)).rejects.toThrow(/tenant/i)
  })
})

describe('the job that ends logins', () => {
  it('ends expired logins, with their sessions', async () => {
    const over = await cliLogin(organization.owner, ref)
    const stays = await cliLogin(organization.owner, ref)
    const [ending, staying] = [await connect(over.user, over.password), await connect(stays.user, stays.password)]
    const past = { expiresAt: new Date(Date.now() - 1) }
    await control.update(temporaryLogins).set(past).where(eq(temporaryLogins.role, over.role))
    await tick()
    await hasEnded(ending)
    expect((await staying.query('select 1 as v')).rows).toEqual([{ v: 1 }])
    expect(await rolesOf(ref)).not.toContain(over.role)
    expect(await rolesOf(ref)).toContain(stays.role)
  })

  it('ends a login again if the database is replaced meanwhile by one that may have it', async () => {
    const project = await newProject(organization)
    const over = await cliLogin(organization.owner, project)
    const replace = (status: 'RESTORING' | 'ACTIVE_HEALTHY') =>
      control.update(projects).set({ status }).where(eq(projects.ref, project))
    const past = { expiresAt: new Date(Date.now() - 1) }
    await control.update(temporaryLogins).set(past).where(eq(temporaryLogins.role, over.role))
    await replace('RESTORING')
    await tick()
    await expect.poll(() => rolesOf(project)).toEqual([])

    await adminRows(project, `create role ${over.role} login`)
    await replace('ACTIVE_HEALTHY')
    await tick()
    await expect.poll(() => rolesOf(project)).toEqual([])
    const left = eq(temporaryLogins.projectRef, project)
    await expect.poll(() => control.$count(temporaryLogins, left)).toBe(0)
  })

  it('is not delayed by a project whose database refuses connections', async () => {
    const closed = await newProject(organization)
    const admin = await adminClient(closed, { database: 'template1' })
    await admin.query('alter database postgres allow_connections false')
    await admin.end()
    const longAgo = new Date(Date.now() - 86_400_000)
    await control.insert(temporaryLogins).values(
      Array.from({ length: 500 }, (_, n) => ({
        ...{ projectRef: closed, grantedRole: 'owner', createdAt: longAgo, expiresAt: longAgo },
        role: `cli_login_${closed.slice(0, 4)}${n}`,
      })),
    )
    const failed = () => control.select().from(temporaryLogins).where(isNotNull(temporaryLogins.failedAt))
    await expect.poll(() => tick().then(async () => (await failed()).length)).toBeGreaterThanOrEqual(500)
    const over = await cliLogin(organization.owner, ref)
    const past = { expiresAt: new Date(Date.now() - 1) }
    await control.update(temporaryLogins).set(past).where(eq(temporaryLogins.role, over.role))
    await tick()
    await expect.poll(() => rolesOf(ref)).not.toContain(over.role)
    await control.delete(temporaryLogins).where(eq(temporaryLogins.projectRef, closed))
  })

  it('waits for no other project, and spares a login that is renewed meanwhile', async () => {
    const busy = await newProject(organization)
    const { member, userId } = await granted(busy, 'postgres')
    const renewed = await loggedIn(member, busy, 'postgres')
    const over = await cliLogin(organization.owner, ref)
    const past = { expiresAt: new Date(Date.now() - 1) }
    await control.update(temporaryLogins).set(past).where(eq(temporaryLogins.userId, userId))
    await control.update(temporaryLogins).set(past).where(eq(temporaryLogins.role, over.role))
    const release = await lockInstance(`${busy}-logins`)
    const ticked = tick()
    const loginOfBusy = async () =>
      (await control.select().from(temporaryLogins).where(eq(temporaryLogins.userId, userId)))[0]
    await expect.poll(() => rolesOf(ref)).not.toContain(over.role)
    expect(await loginOfBusy()).toMatchObject({ failedAt: null })

    const renewal = authorize(member, busy, 'postgres')
    await expect.poll(async () => (await loginOfBusy())?.expiresAt.getTime()).toBeGreaterThan(past.expiresAt.getTime())
    await release()
    expect(await renewal).toMatchObject({ status: 200 })
    await ticked
    expect((await renewed.query('select 1 as v')).rows).toEqual([{ v: 1 }])
  })

  it('ends withdrawn logins before expired ones, of which it ends a limited number', async () => {
    const project = await newProject(organization)
    const { member, userId } = await granted(project, 'postgres')
    const session = await loggedIn(member, project, 'postgres')
    const longAgo = new Date(Date.now() - 86_400_000)
    await control.insert(temporaryLogins).values(
      Array.from({ length: 1_500 }, (_, n) => ({
        ...{ projectRef: project, grantedRole: 'owner', createdAt: longAgo, expiresAt: longAgo },
        role: `cli_login_${project.slice(0, 4)}${n}`,
      })),
    )
    await control.update(users).set({ disabledAt: new Date() }).where(eq(users.id, userId))
    await tick()
    await hasEnded(session)
    expect(await control.$count(temporaryLogins, eq(temporaryLogins.userId, userId))).toBe(0)
    expect(await control.$count(temporaryLogins, eq(temporaryLogins.projectRef, project))).toBeGreaterThan(0)
    await control.delete(temporaryLogins).where(eq(temporaryLogins.projectRef, project))
  })

  it('spares a login that is renewed while it is being found', async () => {
    const project = await newProject(organization)
    const { member, userId } = await granted(project, 'postgres')
    const session = await loggedIn(member, project, 'postgres')
    const isMembers = eq(temporaryLogins.userId, userId)
    const expire = (tx: Pick<typeof control, 'update'>, ms: number) =>
      tx
        .update(temporaryLogins)
        .set({ expiresAt: new Date(Date.now() + ms) })
        .where(isMembers)
    await expire(control, -1)
    const { asked } = await control.transaction(async (tx) => {
      await expire(tx, 3_600_000)
      return { asked: await untilBlocked(tx, () => tick()) }
    })
    await asked
    await tick()
    expect((await session.query('select 1 as v')).rows).toEqual([{ v: 1 }])
    expect(await control.$count(temporaryLogins, isMembers)).toBe(1)
  })

  it('ends the logins of a revoked token, and of a former member', async () => {
    const member = await newMember(organization, 'developer')
    const userId = await userOf(member)
    const revoked = await cliLogin(member, ref)
    const session = await connect(revoked.user, revoked.password)
    await control.update(accessTokens).set({ revokedAt: new Date() }).where(eq(accessTokens.userId, userId))
    await tick()
    await hasEnded(session)
    const leaver = await newMember(organization, 'developer')
    const left = await cliLogin(leaver, ref)
    await control.delete(memberRoles).where(eq(memberRoles.userId, await userOf(leaver)))
    await tick()
    expect(await rolesOf(ref)).not.toContain(left.role)
    await organization.owner.delete(`/v1/projects/${ref}/cli/login-role`)
  })

  it('does not wait for a backup or another long operation on the instance', async () => {
    onTestFinished(await lockInstance(ref))
    const over = await cliLogin(organization.owner, ref)
    const session = await connect(over.user, over.password)
    const past = { expiresAt: new Date(Date.now() - 1) }
    await control.update(temporaryLogins).set(past).where(eq(temporaryLogins.role, over.role))
    await tick()
    await hasEnded(session)
    expect(await rolesOf(ref)).not.toContain(over.role)
  })
})

/** Takes the lock of an instance on its host, and keeps it until the returned function is called. */
async function lockInstance(name: string): Promise<() => Promise<void>> {
  const call = (method: string, path: string, body?: object) =>
    callHost(inject('host'), method, `/instances/${name}/lock${path}`, { body })
  const { lock } = (await (await call('POST', '', { wait_ms: 10_000 })).json()) as { lock: string }
  const renewal = setInterval(() => call('PUT', `/${lock}`), 1_000)
  return async () => {
    clearInterval(renewal)
    await call('DELETE', `/${lock}`)
  }
}

async function userOf(caller: Caller): Promise<string> {
  const [row] = await control
    .select({ id: accessTokens.userId })
    .from(accessTokens)
    .where(eq(accessTokens.hash, await hashToken(caller.token ?? '')))
  if (!row) throw new Error('no such token')
  return row.id
}

const ANYWHERE = { allowed_cidrs: [{ cidr: '127.0.0.0/8' }], allowed_cidrs_v6: [{ cidr: '::1/128' }] }

/** Makes a member with a role in the database of a project in which access is enabled. */
async function granted(project: string, role: string, bounds: Record<string, unknown> = {}) {
  const member = await newMember(organization, 'developer')
  const userId = await userOf(member)
  const admin = await newMember(organization, 'administrator')
  await admin.put(`/v1/projects/${project}/jit-access`, { state: 'enabled' })
  const roles = [{ role, ...bounds }]
  const reply = await admin.put(`/v1/projects/${project}/database/jit`, { user_id: userId, roles })
  expect(reply).toMatchObject({ status: 200, body: { user_id: userId, user_roles: roles } })
  return { member, userId }
}

const authorize = (caller: Caller, project: string, role: string, rhost = '127.0.0.1') =>
  caller.post(`/v1/projects/${project}/database/jit`, { role, rhost })

async function loggedIn(caller: Caller, project: string, role: string): Promise<pg.Client> {
  const reply = await authorize(caller, project, role)
  expect(reply).toMatchObject({ status: 200 })
  return connect(reply.body.login.user, caller.token ?? '')
}

describe('the jit access of a project', () => {
  it('is disabled until it is enabled', async () => {
    const project = await newProject(organization)
    const path = `/v1/projects/${project}/jit-access`
    expect((await organization.owner.get(path)).body).toEqual({ state: 'disabled', appliedSuccessfully: true })
    for (const state of ['enabled', 'disabled', 'enabled']) {
      const reply = await organization.owner.put(path, { state })
      expect([reply.status, reply.body]).toEqual([200, { state, appliedSuccessfully: true }])
      expect((await organization.owner.get(path)).body).toEqual(reply.body)
    }
  })

  it.each([[{}], [{ state: 'on' }], [{ state: 'unavailable' }], [{ state: null }]])(
    'refuses %j and does not change',
    async (body) => {
      const path = `/v1/projects/${ref}/jit-access`
      const before = (await organization.owner.get(path)).body
      const reply = await organization.owner.put(path, body)
      expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining('body.state') } })
      expect((await organization.owner.get(path)).body).toEqual(before)
    },
  )

  it('admits nobody while it is disabled, and ends open sessions', async () => {
    const { member } = await granted(ref, 'postgres')
    const session = await loggedIn(member, ref, 'postgres')
    const cli = await cliLogin(organization.owner, ref)
    const other = await connect(cli.user, cli.password)
    await organization.owner.put(`/v1/projects/${ref}/jit-access`, { state: 'disabled' })
    await hasEnded(session)
    expect((await other.query('select 1 as v')).rows).toEqual([{ v: 1 }])
    const reply = await authorize(member, ref, 'postgres')
    expect(reply).toMatchObject({ status: 403, body: { message: expect.stringContaining('disabled') } })
  })
})

describe('PUT /v1/projects/{ref}/database/jit', () => {
  it('returns the roles of a member, to the member and to administrators', async () => {
    const project = await newProject(organization)
    const bounds = { expires_at: Math.floor(Date.now() / 1000) + 600, allowed_networks: ANYWHERE, branches_only: false }
    const { member, userId } = await granted(project, 'postgres', bounds)
    const path = `/v1/projects/${project}/database/jit`
    const user_roles = [{ role: 'postgres', ...bounds }]
    expect((await member.get(path)).body).toEqual({ user_id: userId, user_roles })
    const nothing = { user_id: organization.userId, user_roles: [] }
    expect((await organization.owner.get(path)).body).toEqual(nothing)
    const [user] = await control.select().from(users).where(eq(users.id, userId))
    expect((await organization.owner.get(`${path}/list`)).body).toEqual({
      items: [{ user_id: userId, primary_email: user?.primaryEmail, invite_id: null, expires_at: null, user_roles }],
    })
    await control.delete(memberRoles).where(eq(memberRoles.userId, userId))
    expect((await organization.owner.get(`${path}/list`)).body).toEqual({ items: [] })
  })

  it('rounds a fractional time down', async () => {
    const project = await newProject(organization)
    const soon = Math.floor(Date.now() / 1000) + 600
    const roles = [{ role: 'postgres', expires_at: soon + 0.75 }]
    const path = `/v1/projects/${project}/database/jit`
    expect((await organization.owner.put(path, { user_id: organization.userId, roles })).status).toBe(200)
    expect((await organization.owner.get(path)).body.user_roles).toEqual([{ role: 'postgres', expires_at: soon }])
  })

  const role = 'postgres'
  it.each([
    [{ roles: [] }, 'body.user_id'],
    [{ user_id: 'me', roles: [] }, 'body.user_id'],
    [{ user_id: '00000000-0000-4000-8000-000000000000', roles: [] }, 'body.user_id'],
    [{ roles: undefined }, 'body.roles'],
    [{ roles: [{}] }, 'body.roles.0.role'],
    [{ roles: [{ role: '' }] }, 'body.roles.0.role'],
    [{ roles: [{ role: 'pilothouse_reader' }] }, 'body.roles.0.role'],
    [{ roles: [{ role: 'supabase_storage_admin' }] }, 'body.roles.0.role'],
    [{ roles: [{ role: 'pg_read_all_data' }] }, 'body.roles.0.role'],
    [{ roles: [{ role: 'constructor' }] }, 'body.roles.0.role'],
    [{ roles: [{ role: 'postgres.abcdefghijklmnopqrst' }] }, 'body.roles.0.role'],
    [{ roles: [{ role: 'anon' }, { role: 'anon' }] }, 'body.roles.1.role'],
    [{ roles: [{ role, expires_at: Date.now() }] }, 'body.roles.0.expires_at'],
    [{ roles: [{ role, expires_at: -1 }] }, 'body.roles.0.expires_at'],
    [
      { roles: [{ role: 'anon' }, { role, expires_at: 1_700_000_000 }] },
      'body.roles.1.expires_at: must be in the future',
    ],
    [{ roles: [{ role, allowed_networks: { allowed_cidrs: [{ cidr: '10.0.0.0/33' }] } }] }, 'allowed_cidrs.0.cidr'],
    [{ roles: [{ role, allowed_networks: { allowed_cidrs: [{ cidr: '::/0' }] } }] }, 'allowed_cidrs.0.cidr'],
    [{ roles: [{ role, allowed_networks: { allowed_cidrs_v6: [{ cidr: 'x' }] } }] }, 'allowed_cidrs_v6.0.cidr'],
    [{ roles: [{ role, branches_only: 'yes' }] }, 'body.roles.0.branches_only'],
    [{ roles: Array(11).fill({ role }) }, 'body.roles'],
  ])('refuses %j by name and changes nothing', async (body, field) => {
    const member = organization.userId
    const filled = 'user_id' in body || field === 'body.user_id' ? body : { user_id: member, ...body }
    const reply = await organization.owner.put(`/v1/projects/${ref}/database/jit`, filled)
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining(field) } })
    expect((await organization.owner.get(`/v1/projects/${ref}/database/jit`)).body.user_roles).toEqual([])
  })

  it('accepts the id of a member in either case, and returns it as stored', async () => {
    const { userId, owner } = organization
    const path = `/v1/projects/${ref}/database/jit`
    const reply = await owner.put(path, { user_id: userId.toUpperCase(), roles: [] })
    expect(reply).toMatchObject({ status: 200, body: { user_id: userId } })
    expect(await owner.delete(`${path}/${userId.toUpperCase()}`)).toMatchObject({ status: 200 })
  })

  it('refuses a member of other projects', async () => {
    const userId = await newUser()
    await addMember(organization.id, userId, 'developer', 'abcdefghijklmnopqrst')
    const reply = await organization.owner.put(`/v1/projects/${ref}/database/jit`, { user_id: userId, roles: [] })
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining('body.user_id') } })
  })

  it('is for administrators; others can neither see nor remove grants of somebody else', async () => {
    const path = `/v1/projects/${ref}/database/jit`
    const { userId } = await granted(ref, 'anon')
    const statuses = async (caller: Caller) => [
      (await caller.put(path, { user_id: userId, roles: [{ role: 'anon' }] })).status,
      (await caller.get(`${path}/list`)).status,
      (await caller.delete(`${path}/${userId}`)).status,
    ]
    expect(await statuses(await newMember(organization, 'developer'))).toEqual([403, 403, 403])
    expect(await statuses(await newMember(organization, 'read-only'))).toEqual([403, 403, 403])
    expect(await statuses(await tokenOf(await newUser()))).toEqual([404, 404, 404])
    expect(await statuses((await newApp(organization, ['projects:read'])).caller)).toEqual([403, 403, 403])
    expect(await statuses((await newApp(organization, ['database:read'])).caller)).toEqual([403, 200, 403])
    expect(await statuses(await newMember(organization, 'administrator'))).toEqual([200, 200, 200])
  })

  it('ends sessions of a role that is removed or restricted otherwise, and no others', async () => {
    const { member, userId } = await granted(ref, 'anon')
    const path = `/v1/projects/${ref}/database/jit`
    const set = (roles: unknown[]) => organization.owner.put(path, { user_id: userId, roles })
    await set([{ role: 'anon' }, { role: 'authenticated' }, { role: 'service_role' }])
    const [anon, authenticated, service] = await Promise.all(
      ['anon', 'authenticated', 'service_role'].map((role) => loggedIn(member, ref, role)),
    )
    const unbound = { allowed_cidrs: [], allowed_cidrs_v6: [] }
    await set([
      { role: 'authenticated', allowed_networks: ANYWHERE },
      { role: 'service_role', allowed_networks: unbound },
    ])
    await hasEnded(anon as pg.Client)
    await hasEnded(authenticated as pg.Client)
    expect((await service?.query('select current_user::text as v'))?.rows).toEqual([{ v: 'service_role' }])
    expect((await authorize(member, ref, 'anon')).status).toBe(403)
  })
})

describe('POST /v1/projects/{ref}/database/jit', () => {
  it('opens a login whose password is the access token', async () => {
    const { member, userId } = await granted(ref, 'postgres', { allowed_networks: ANYWHERE })
    const reply = await authorize(member, ref, 'postgres')
    expect([reply.status, reply.body]).toEqual([
      200,
      {
        user_id: userId,
        user_role: { role: 'postgres', allowed_networks: ANYWHERE },
        login: {
          user: expect.stringMatching(new RegExp(`^jit_login_[a-z]{8}\\.${ref}$`)),
          host: inject('databaseHost'),
          port: inject('databasePort'),
          database: 'postgres',
          expires_at: expect.any(Number),
        },
      },
    ])
    expect(Math.abs(reply.body.login.expires_at - Date.now() / 1000 - 3600)).toBeLessThan(60)
    const client = await connect(reply.body.login.user, member.token ?? '')
    await client.query('create table public.by_member (n int)')
    const owner = `select tableowner as v from pg_tables where tablename = 'by_member'`
    expect((await client.query(owner)).rows).toEqual([{ v: 'postgres' }])
    await expect(connect(reply.body.login.user, organization.owner.token ?? '')).rejects.toThrow(/password/)
    // A repeated request returns the same login, and its sessions go on.
    expect((await authorize(member, ref, 'postgres')).body.login.user).toBe(reply.body.login.user)
    expect((await client.query('select 1 as v')).rows).toEqual([{ v: 1 }])
    const rows = await control.select().from(temporaryLogins).where(eq(temporaryLogins.userId, userId))
    const audit = await control.select().from(auditLog).where(eq(auditLog.projectRef, ref))
    expect(JSON.stringify([rows, audit])).not.toContain(member.token)
    expect((await workerLogs()).join('\n')).not.toContain(member.token)
  })

  it('is refused beyond 50 open logins of a user, except to renew one', async () => {
    const { member, userId } = await granted(ref, 'postgres')
    const project = { projectRef: ref, userId, grantedRole: 'owner', createdAt: new Date() }
    const rows = Array.from({ length: 49 }, () => ({
      ...{ ...project, role: `jit_login_${randomLetters(8)}` },
      expiresAt: new Date(Date.now() + 600_000),
    }))
    await control.insert(temporaryLogins).values(rows)
    expect(await authorize(member, ref, 'postgres')).toMatchObject({ status: 200 })
    const other = await tokenOf(userId)
    const refused = { status: 409, body: { message: expect.stringContaining('50') } }
    expect(await authorize(other, ref, 'postgres')).toMatchObject(refused)
    expect(await authorize(member, ref, 'postgres')).toMatchObject({ status: 200 })
    const isFirst = eq(temporaryLogins.role, rows[0]?.role ?? '')
    await control.update(temporaryLogins).set({ expiresAt: new Date() }).where(isFirst)
    expect(await authorize(other, ref, 'postgres')).toMatchObject({ status: 200 })
    await control.delete(temporaryLogins).where(eq(temporaryLogins.userId, userId))
  })

  it('has the rights of the role, and no others', async () => {
    await runSql(
      organization.owner,
      ref,
      `create table public.rows (owner text); insert into public.rows values ('a'), ('b');
       alter table public.rows enable row level security;
       create policy a on public.rows for select to anon using (owner = 'a')`,
    )
    const { member } = await granted(ref, 'anon')
    const client = await loggedIn(member, ref, 'anon')
    expect((await client.query('select owner from public.rows')).rows).toEqual([{ owner: 'a' }])
    for (const role of ['supabase_read_only_user', 'service_role', 'authenticated', 'postgres']) {
      await expect(client.query(`set role ${role}`), role).rejects.toThrow(/permission denied/)
      expect((await authorize(member, ref, role)).status).toBe(403)
    }
    await expect(client.query('create table public.mine (n int)')).rejects.toThrow(/permission denied/)
  })

  it('reads and cannot write as supabase_read_only_user', async () => {
    const { member } = await granted(ref, 'supabase_read_only_user')
    const client = await loggedIn(member, ref, 'supabase_read_only_user')
    await client.query('select * from supabase_migrations.schema_migrations')
    await expect(client.query('delete from supabase_migrations.schema_migrations')).rejects.toThrow(/read-only/)
    await client.query('set default_transaction_read_only = off')
    await expect(client.query('delete from supabase_migrations.schema_migrations')).rejects.toThrow(/permission denied/)
  })

  it('is refused from outside the networks, whatever address the caller claims', async () => {
    const elsewhere = { allowed_networks: { allowed_cidrs: [{ cidr: '10.0.0.0/8' }] } }
    const { member } = await granted(ref, 'postgres', elsewhere)
    const honest = await authorize(member, ref, 'postgres', '127.0.0.1')
    expect(honest).toMatchObject({ status: 403, body: { message: expect.stringContaining('127.0.0.1') } })
    const lying = await authorize(member, ref, 'postgres', '10.1.2.3')
    expect(lying.status).toBe(200)
    const { user } = lying.body.login
    const login = (options: string) => connect(user, member.token ?? '', { options })
    await expect(login('')).rejects.toThrow(/not in tenant allow_list: 127\.0\.0\.1/)
    await expect(login('-c role=none -c search_path=public')).rejects.toThrow(/not in tenant allow_list: /)
    await expect(login('-c event_triggers=off')).rejects.toThrow(/not in tenant allow_list/)
    await expect(login('-c session_replication_role=replica')).rejects.toThrow(/not in tenant allow_list/)
  })

  it.each([
    [`comment on role current is '{}'`],
    [`alter role current valid until 'infinity'`],
    [`set role none; comment on role current is '{}'`],
    [`set role none; alter role current valid until 'infinity'`],
    ['set role none; alter role current connection limit -1'],
  ])('cannot be extended from inside: %s', async (statement) => {
    const { member } = await granted(ref, 'postgres')
    const client = await loggedIn(member, ref, 'postgres')
    const { rows } = await client.query('select session_user::text as me')
    const text = statement.replace('role current', `role ${rows[0].me}`)
    await expect(client.query(text)).rejects.toThrow(/permission denied|must be owner/)
  })

  it('is checked whatever the owner sets for all sessions', async () => {
    const project = await newProject(organization)
    const elsewhere = { allowed_networks: { allowed_cidrs: [{ cidr: '10.0.0.0/8' }] } }
    const { member } = await granted(project, 'postgres', elsewhere)
    const { body } = await authorize(member, project, 'postgres', '10.1.2.3')
    await runSql(
      organization.owner,
      project,
      `create schema trap;
       create function trap.host(inet) returns text language sql as $$ select '10.0.0.1' $$;
       create function trap.inet_client_addr() returns inet language sql as $$ select '10.0.0.1'::inet $$;
       alter database postgres set search_path = 'trap', 'pg_catalog';
       alter database postgres set plpgsql.extra_errors = 'all'`,
    )
    await expect(connect(body.login.user, member.token ?? '')).rejects.toThrow(/not in tenant allow_list: /)
    await expect(connect(`postgres.${project}`, PASSWORD)).resolves.toBeDefined()
    const inside = { ...elsewhere, allowed_networks: ANYWHERE }
    const { member: other } = await granted(project, 'anon', inside)
    await expect(loggedIn(other, project, 'anon')).resolves.toBeDefined()
  })

  it('ends with the grant, the token and the login', async () => {
    const soon = Math.floor(Date.now() / 1000) + 120
    const { member } = await granted(ref, 'postgres', { expires_at: soon })
    expect((await authorize(member, ref, 'postgres')).body.login.expires_at).toBe(soon)
    const { userId: ended, member: late } = await granted(ref, 'postgres', { expires_at: soon })
    const reply = await authorize(late.at(new Date(soon * 1000)), ref, 'postgres')
    expect(reply).toMatchObject({ status: 403, body: { message: expect.stringContaining('has expired') } })
    expect(await control.select().from(temporaryLogins).where(eq(temporaryLogins.userId, ended))).toEqual([])
    const { userId } = await granted(ref, 'anon')
    const brief = await tokenOf(userId, { expiresAt: new Date(soon * 1000) })
    expect((await authorize(brief, ref, 'anon')).body.login.expires_at).toBe(soon)
  })

  it('ends when the token is revoked', async () => {
    const { member, userId } = await granted(ref, 'postgres')
    const session = await loggedIn(member, ref, 'postgres')
    // A value that the user sets meanwhile keeps no access.
    const { rows } = await session.query('select session_user::text as me')
    await session.query(`set role none; alter role ${rows[0].me} password 'known to the member'`)
    const other = as(await issueToken(control, { userId, name: 'second' }))
    const stays = await loggedIn(other, ref, 'postgres')
    await control
      .update(accessTokens)
      .set({ revokedAt: new Date() })
      .where(eq(accessTokens.hash, await hashToken(member.token ?? '')))
    await tick()
    await hasEnded(session)
    await expect(connect(`${rows[0].me}.${ref}`, 'known to the member')).rejects.toThrow(
      /password authentication failed/,
    )
    expect((await stays.query('select 1 as v')).rows).toEqual([{ v: 1 }])
  })

  it('leaves no password by which its holder could return as the owner', async () => {
    const project = await newProject(organization)
    const { member, userId } = await granted(project, 'postgres')
    const session = await loggedIn(member, project, 'postgres')
    await session.query(`alter role postgres password 'known to the member'`)
    expect((await authorize(member, project, 'postgres')).status).toBe(200)
    const asOwner = await connect(`postgres.${project}`, 'known to the member')
    await organization.owner.delete(`/v1/projects/${project}/database/jit/${userId}`)
    await expect(connect(`postgres.${project}`, 'known to the member')).rejects.toThrow(
      /password authentication failed/,
    )
    await hasEnded(asOwner)
    await expect(connect(`postgres.${project}`, PASSWORD)).resolves.toBeDefined()
  })

  it('leaves no granted role, and no password of a role of the API', async () => {
    const project = await newProject(organization)
    const { member, userId } = await granted(project, 'postgres')
    const session = await loggedIn(member, project, 'postgres')
    const { rows } = await session.query('select session_user::text as me')
    const { me } = rows[0]
    await session.query(`create role heir; grant service_role to ${me} with admin option; set role none;
      grant service_role to heir; set role postgres; alter role service_role login password 'known to the member';
      alter role authenticator password 'known to the member'; alter role authenticator set role = 'service_role'`)
    await organization.owner.delete(`/v1/projects/${project}/database/jit/${userId}`)
    await hasEnded(session)
    expect(await rolesOf(project)).toEqual([])
    for (const role of ['service_role', 'authenticator'])
      await expect(connect(`${role}.${project}`, 'known to the member'), role).rejects.toThrow(
        /password authentication failed/,
      )
    await expect(connect(`${me}.${project}`, member.token ?? '')).rejects.toThrow(/password authentication failed/)
  })

  it.each(['anon', 'service_role', 'supabase_read_only_user'])('changes and grants no role as %s', async (role) => {
    const { member } = await granted(ref, role)
    const client = await loggedIn(member, ref, role)
    if (role === 'supabase_read_only_user') await client.query('set default_transaction_read_only = off')
    const { rows } = await client.query('select session_user::text as me')
    for (const statement of [
      `alter role authenticated set statement_timeout = '1h'`,
      `alter role authenticator password 'mine'`,
      `grant authenticated to ${rows[0].me}`,
      `grant ${role} to ${rows[0].me} with admin option`,
    ]) {
      await expect(client.query(statement), statement).rejects.toThrow(/permission denied/)
    }
  })

  it('grants no more than the token may do by itself', async () => {
    const { userId } = await granted(ref, 'postgres')
    const reading = await tokenOf(userId, { scopes: ['database:read'] })
    const reply = await authorize(reading, ref, 'postgres')
    expect(reply).toMatchObject({ status: 403, body: { message: expect.stringContaining('database:write') } })
    const nothing = await tokenOf(userId, { scopes: ['projects:read'] })
    expect((await authorize(nothing, ref, 'postgres')).status).toBe(403)
    const outsider = await tokenOf(await newUser())
    expect((await authorize(outsider, ref, 'postgres')).status).toBe(404)
  })

  it.each([
    [{ rhost: '127.0.0.1' }, 'body.role'],
    [{ role: '', rhost: '127.0.0.1' }, 'body.role'],
    [{ role: 'postgres' }, 'body.rhost'],
    [{ role: 'postgres', rhost: 'localhost' }, 'body.rhost'],
    [{ role: 'postgres', rhost: '300.1.1.1' }, 'body.rhost'],
    [{ role: 'postgres', rhost: '10.0.0.0/8' }, 'body.rhost'],
  ])('refuses %j by name', async (body, field) => {
    const reply = await organization.owner.post(`/v1/projects/${ref}/database/jit`, body)
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining(field) } })
  })

  it('accepts an IPv6 address', async () => {
    const { member } = await granted(ref, 'anon', {
      allowed_networks: { allowed_cidrs_v6: [{ cidr: '2001:db8::/32' }] },
    })
    expect((await authorize(member, ref, 'anon', '2001:db8::1')).status).toBe(200)
    expect((await authorize(member, ref, 'anon', '2001:db9::1')).status).toBe(403)
  })

  it('refuses a role that was granted only for branches', async () => {
    const { member } = await granted(ref, 'anon', { branches_only: true })
    expect((await authorize(member, ref, 'anon')).status).toBe(403)
  })

  it('admits a member to a branch by its own grant, else by one for branches, and removes both together', async () => {
    // Without an order of its own, the query may give the grants in the order of the refs.
    const [parent = '', branch = ''] = [await newProject(organization), await newProject(organization)].toSorted()
    await control.update(projects).set({ parentRef: parent }).where(eq(projects.ref, branch))
    const { userId, member } = await granted(parent, 'postgres', { branches_only: true })
    const rolesAt = async (project: string) =>
      (await member.get(`/v1/projects/${project}/database/jit`)).body.user_roles
    expect(await rolesAt(branch)).toEqual([{ role: 'postgres', branches_only: true }])
    expect(await rolesAt(parent)).toEqual([])
    const own = [{ role: 'postgres', expires_at: Math.floor(Date.now() / 1000) + 600 }]
    const setOwn = (roles: unknown) =>
      organization.owner.put(`/v1/projects/${branch}/database/jit`, { user_id: userId, roles })
    expect((await authorize(member, parent, 'postgres')).status).toBe(403)
    expect((await authorize(member, branch, 'postgres')).status).toBe(403)
    await organization.owner.put(`/v1/projects/${branch}/jit-access`, { state: 'enabled' })
    await setOwn(own)
    expect((await authorize(member, branch, 'postgres')).body.user_role).toEqual(own[0])
    await setOwn([])
    const session = await loggedIn(member, branch, 'postgres')
    expect((await session.query('select current_user::text as v')).rows).toEqual([{ v: 'postgres' }])
    await organization.owner.delete(`/v1/projects/${parent}/database/jit/${userId}`)
    await hasEnded(session)
    expect(await rolesOf(branch)).toEqual([])
  })

  it('gets no grant for a member who is being removed', async () => {
    const { userId } = await granted(ref, 'anon')
    const { asked } = await control.transaction(async (tx) => {
      await tx.delete(memberRoles).where(eq(memberRoles.userId, userId))
      const roles = [{ role: 'postgres' }]
      return untilBlocked(tx, () =>
        organization.owner.put(`/v1/projects/${ref}/database/jit`, { user_id: userId, roles }),
      )
    })
    expect(await asked).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('must be a member of the organization') },
    })
  })

  it('admits no role of another project, whatever the owner grants', async () => {
    const [mine, theirs] = [await newProject(organization), await newProject(organization, { db_pass: 'another one' })]
    const { role, password } = await cliLogin(organization.owner, theirs)
    const owner = await connect(`postgres.${mine}`, PASSWORD)
    await owner.query('grant connect on database postgres to public; grant all on schema public to public')
    await expect(connect(`${role}.${mine}`, password)).rejects.toThrow(/password authentication failed/)
    await expect(connect(`postgres.${mine}`, 'another one')).rejects.toThrow(/password authentication failed/)
    await expect(owner.query(`grant connect on database postgres to ${role}`)).rejects.toThrow(/does not exist/)
  })

  it('limits the sessions of all such logins of a project together', async () => {
    const project = await newProject(organization)
    const logins = await Promise.all(Array.from({ length: 3 }, () => cliLogin(organization.owner, project)))
    const came: PromiseSettledResult<pg.Client>[] = []
    // Fewer logins at a time than an address may have before they are authenticated.
    for (const { user, password } of logins) {
      came.push(...(await Promise.allSettled(Array.from({ length: 9 }, () => connect(user, password)))))
    }
    const refused = came.flatMap((each) => (each.status === 'rejected' ? [String(each.reason)] : []))
    expect(came.length - refused.length).toBeLessThanOrEqual(20)
    expect(came.length - refused.length).toBeGreaterThan(9)
    expect(refused.join('\n')).toMatch(/temporary logins hold 20 sessions/)
    await expect(connect(`postgres.${project}`, PASSWORD)).resolves.toBeDefined()
  })

  it('shows the statements of others to the owner and to roles that may read everything', async () => {
    const project = await newProject(organization)
    const owner = await connect(`postgres.${project}`, PASSWORD)
    const { rows } = await owner.query(`select pg_backend_pid() as pid, 'a secret' as v`)
    const reads = await cliLogin(organization.owner, project, true)
    const writes = await cliLogin(organization.owner, project)
    const reader = await connect(reads.user, reads.password)
    const writer = await connect(writes.user, writes.password)
    const seen = async (client: pg.Client, pid: number) => {
      const columns = 'usename, query, state, client_addr, backend_start is null as "noStart"'
      return (await client.query(`select ${columns} from pg_stat_activity where pid = $1`, [pid])).rows
    }
    const shown = { usename: 'postgres', query: expect.stringContaining('a secret'), state: 'idle', noStart: false }
    const hidden = { query: '<insufficient privilege>', state: null, client_addr: null, noStart: true }
    expect(await seen(reader, rows[0].pid)).toMatchObject([shown])
    expect(await seen(writer, rows[0].pid)).toMatchObject([shown])
    const [own] = (await reader.query('select pg_backend_pid() as pid')).rows
    expect(await seen(reader, own.pid)).toMatchObject([{ query: expect.stringContaining('pg_stat_activity') }])
    expect(await seen(owner, own.pid)).toMatchObject([{ query: expect.stringContaining('pg_stat_activity') }])
    await owner.query('set role anon')
    expect(await seen(owner, own.pid)).toMatchObject([hidden])
    const api = `select query as v from pg_stat_activity where pid = ${own.pid}`
    expect((await runSql(organization.owner, project, api)).body).toMatchObject([
      { v: expect.stringContaining('pg_stat_activity') },
    ])
  })

  it('shows itself to the owner, and to no other project', async () => {
    const { member } = await granted(ref, 'postgres')
    const client = await loggedIn(member, ref, 'postgres')
    const { rows } = await client.query('select session_user::text as me')
    const seen = (query: string) => runSql(organization.owner, ref, query)
    const activity = `select count(*)::int as v from pg_stat_activity where usename = '${rows[0].me}'`
    expect((await seen(activity)).body).toEqual([{ v: 1 }])
    expect((await seen(`select rolname as v from pg_roles where rolname = '${rows[0].me}'`)).body).toHaveLength(1)
    const theirs = await newOrganization()
    const other = await newProject(theirs)
    const all = 'select json_agg(v)::text as v from (select rolname from pg_roles) v'
    expect((await runSql(theirs.owner, other, all)).body[0].v).not.toContain(ref)
    const there = connect(`${rows[0].me}.${other}`, member.token ?? '')
    await expect(there).rejects.toThrow(/password authentication failed/)
  })
})

describe('DELETE /v1/projects/{ref}/database/jit/{user_id}', () => {
  it('removes all grants of a member and ends the sessions', async () => {
    const { member, userId } = await granted(ref, 'postgres')
    const session = await loggedIn(member, ref, 'postgres')
    const { login } = (await authorize(member, ref, 'postgres')).body
    const path = `/v1/projects/${ref}/database/jit/${userId}`
    const reply = await organization.owner.delete(path)
    expect([reply.status, reply.body, reply.headers.get('content-type')]).toEqual([200, '', null])
    await hasEnded(session)
    await expect(connect(login.user, member.token ?? '')).rejects.toThrow(/password authentication failed/)
    expect((await authorize(member, ref, 'postgres')).status).toBe(403)
    expect((await organization.owner.delete(path)).status).toBe(404)
  })

  it('lets members give up their own grants', async () => {
    const { member, userId } = await granted(ref, 'anon')
    expect((await member.delete(`/v1/projects/${ref}/database/jit/${userId}`)).status).toBe(200)
    expect((await member.get(`/v1/projects/${ref}/database/jit`)).body.user_roles).toEqual([])
  })

  it('refuses an invalid id', async () => {
    const reply = await organization.owner.delete(`/v1/projects/${ref}/database/jit/me`)
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining('path.user_id') } })
  })
})
