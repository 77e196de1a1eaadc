import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { connect } from 'node:net'
import { type SQL, sql } from 'drizzle-orm'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { control, newOrganization } from '../support/api.ts'
import { createBranch } from '../support/branches.ts'
import { byRefresh, newTokens, registerApp } from '../support/oauth.ts'
import { serveInstallation } from '../support/serve.ts'
import { type Installation, startInstallation } from '../support/storage-installation.ts'

/** Settings of a GitHub App that does not exist. */
const GITHUB_APP = { GITHUB_APP_ID: '1', GITHUB_APP_PRIVATE_KEY: 'none', GITHUB_WEBHOOK_SECRET: 'secret' }

describe('a body that does not arrive', () => {
  /** An installation of its own, with a shorter timeout than the others. */
  let installation: Installation
  let organization: Awaited<ReturnType<Installation['newOrganization']>>
  beforeAll(async () => {
    installation = await startInstallation({
      serve: ({ vars, secrets }, folder) =>
        serveInstallation({ vars: { ...vars, ...GITHUB_APP, BODY_TIMEOUT_SECONDS: '1' }, secrets }, folder),
    })
    organization = await installation.newOrganization()
  })
  afterAll(() => installation.stop())

  /** Returns the answer to the start of a request whose rest is never sent. */
  async function begin(method: string, path: string, headers: Record<string, string>, sent: string): Promise<string> {
    const { hostname, port } = new URL(organization.owner.base)
    const socket = connect(Number(port), hostname)
    await once(socket, 'connect')
    const all = { host: hostname, authorization: `Bearer ${organization.owner.token}`, ...headers }
    const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`)
    socket.write(`${method} ${path} HTTP/1.1\r\n${lines.join('')}\r\n${sent}`)
    let received = ''
    socket.setEncoding('utf8').on('data', (text) => {
      received += text
    })
    try {
      await vi.waitFor(() => expect(received).toMatch(/\r\n\r\n.*}/s), 60_000)
      return received
    } finally {
      socket.destroy()
    }
  }

  const json = { 'content-type': 'application/json' }
  const late = 'Request timeout: the body was not received within 1 s'

  it.each([
    ['with a declared length', { ...json, 'content-length': '100' }, '{"name":'],
    ['without a declared length', { ...json, 'transfer-encoding': 'chunked' }, '8\r\n{"name":\r\n'],
  ])('is answered 408 on v1: %s', async (_, headers, sent) => {
    const reply = await begin('POST', '/v1/organizations', headers, sent)
    expect(reply).toMatch(/^HTTP\/1.1 408 /)
    expect(reply).toContain(JSON.stringify({ message: late }))
  })

  it('is answered 408 with the code of the specification on v2', async () => {
    const path = `/v2/organizations/${organization.slug}/members/invitations`
    const reply = await begin('POST', path, { ...json, 'content-length': '100' }, '{')
    expect(reply).toMatch(/^HTTP\/1.1 408 /)
    expect(reply).toContain('"code":"request_timeout","message":"Request Timeout"')
  })

  it('is answered 408 if it is optional, and if it is not JSON', async () => {
    const form = { 'content-type': 'application/x-www-form-urlencoded', 'content-length': '100' }
    const reply = await begin('POST', '/v1/oauth/token', form, 'grant_type=')
    expect(reply).toMatch(/^HTTP\/1.1 408 /)
    expect(reply).toContain('"error":"temporarily_unavailable"')
    const { ref } = await installation.newStorage(organization)
    await createBranch(organization.owner, ref, { is_default: true })
    const optional = await begin('POST', `/v1/branches/${ref}/push`, { ...json, 'content-length': '9' }, '{')
    expect(optional).toMatch(/^HTTP\/1.1 408 /)
  })

  it('is answered 408 if it is a delivery of GitHub, before its signature is verified', async () => {
    const event = { 'x-github-event': 'push', 'x-github-delivery': randomUUID() }
    const signature = { 'x-hub-signature-256': `sha256=${'0'.repeat(64)}` }
    const headers = { ...json, ...event, ...signature, 'content-length': '100' }
    const reply = await begin('POST', '/integrations/github/webhook', headers, '{')
    expect(reply).toMatch(/^HTTP\/1.1 408 /)
    expect(reply).toContain(late)
  })

  it('is refused without waiting if it is too large or of another type', async () => {
    const tooLarge = await begin('POST', '/v1/organizations', { ...json, 'content-length': '99999999' }, '{')
    expect(tooLarge).toMatch(/^HTTP\/1.1 413 /)
    const other = await begin('POST', '/v1/organizations', { 'content-type': 'text/plain', 'content-length': '9' }, '{')
    expect(other).toMatch(/^HTTP\/1.1 415 /)
    const unknown = await begin('PATCH', '/v1/projects/aaaaaaaaaaaaaaaaaaaa', { ...json, 'content-length': '9' }, '{')
    expect(unknown).toMatch(/^HTTP\/1.1 404 /)
  })

  it('is read normally if it arrives in time', async () => {
    expect((await organization.owner.post('/v1/organizations', { name: 'x' })).status).toBe(201)
  })
})

it('a change that waits too long for another one is answered 503, so that waiting ones hold no session for long', async () => {
  const { id, slug, owner } = await newOrganization()
  const app = { client_name: 'x', redirect_uris: ['https://app.example/'], scope: 'projects:read' }
  await control.transaction(async (tx) => {
    await tx.execute(sql`select from organizations where id = ${id} for update`)
    const { status, headers, body } = await owner.post(`/v1/organizations/${slug}/oauth/apps`, app)
    expect([status, headers.get('retry-after')]).toEqual([503, '1'])
    expect(body.message).toBe('The control plane is busy: try again shortly')
  })
})

/** Runs 60 changes that wait for a locked row, and expects them to hold 8 sessions while `other` runs. */
async function expectFewSessions<T>(lock: SQL, change: () => Promise<T>, other: () => Promise<unknown>): Promise<T[]> {
  const waiting = await control.transaction(async (tx) => {
    await tx.execute(lock)
    const { rows } = await tx.execute<{ pid: number }>(sql`select pg_backend_pid() as pid`)
    const sessionsWaiting = async () => {
      const found = await control.execute<{ pid: number }>(sql`
        with recursive waiting (pid) as (values (${rows[0]?.pid}::int)
          union select a.pid from waiting w join pg_stat_activity a on w.pid = any (pg_blocking_pids(a.pid)))
        select pid from waiting offset 1`)
      return found.rows.length
    }
    const replies = Array.from({ length: 60 }, change)
    await vi.waitFor(async () => expect(await sessionsWaiting()).toBeGreaterThanOrEqual(8), 60_000)
    await other()
    expect(await sessionsWaiting()).toBe(8)
    return replies
  })
  return Promise.all(waiting)
}

it('waiting changes of one user hold few sessions, and delay nobody else', async () => {
  const { id, slug, owner } = await newOrganization()
  const other = await newOrganization()
  const app = { client_name: 'x', redirect_uris: ['https://app.example/'], scope: 'projects:read' }
  const add = (caller: typeof owner, to: string) => caller.post(`/v1/organizations/${to}/oauth/apps`, app)
  const replies = await expectFewSessions(
    sql`select from organizations where id = ${id} for update`,
    () => add(owner, slug),
    async () => expect((await add(other.owner, other.slug)).status).toBe(201),
  )
  for (const { status } of replies) expect(status).toBe(201)
})

it('waiting refreshes of one authorization hold few sessions, and delay nobody else', async () => {
  const organization = await newOrganization()
  const other = await newOrganization()
  const app = await registerApp(organization)
  const { refresh_token: token } = await newTokens(app, organization)
  const { refresh_token: ofOther } = await newTokens(app, other)
  const replies = await expectFewSessions(
    sql`select from oauth_grants where organization_id = ${organization.id} for update`,
    () => byRefresh(app, token),
    async () => expect((await byRefresh(app, ofOther)).status).toBe(200),
  )
  for (const { status } of replies) expect(status).toBe(200)
})

it('a statement that the control database canceled is answered 408', async () => {
  const { id, slug, owner } = await newOrganization()
  const app = { client_name: 'x', redirect_uris: ['https://app.example/'], scope: 'projects:read' }
  await control.transaction(async (tx) => {
    await tx.execute(sql`select from organizations where id = ${id} for update`)
    const waiting = owner.post(`/v1/organizations/${slug}/oauth/apps`, app)
    const { rows } = await tx.execute<{ pid: number }>(sql`select pg_backend_pid() as pid`)
    await vi.waitFor(async () => {
      const ended = await control.execute(sql`select pg_cancel_backend(pid) from pg_stat_activity
        where ${rows[0]?.pid} = any(pg_blocking_pids(pid))`)
      expect(ended.rows).toHaveLength(1)
    }, 60_000)
    expect(await waiting).toMatchObject({ status: 408, body: { message: 'Request timeout' } })
  })
  expect((await owner.post(`/v1/organizations/${slug}/oauth/apps`, app)).status).toBe(201)
})
