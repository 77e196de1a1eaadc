import { randomUUID } from 'node:crypto'
import { eq, inArray } from 'drizzle-orm'
import { beforeAll, describe, expect, it, vi } from 'vitest'
import { gitBranches, gitConnections, gitDeliveries, users } from '../../../src/model/tables/index.ts'
import {
  type Caller,
  control,
  newMember,
  newOrganization,
  type TestOrganization,
  tick,
  unhurried,
} from '../../support/api.ts'
import { connect, deliver, disconnect, newRepository, signatureOf, type TestRepository } from '../../support/github.ts'
import { insertProject, WAIT } from '../../support/webhooks.ts'

let organization: TestOrganization
beforeAll(async () => {
  organization = await newOrganization()
})

const list = (caller: Caller, query = '', { slug } = organization) =>
  caller.get(`/v2/organizations/${slug}/integrations/github/connections${query}`)

describe('GET /v2/organizations/{slug}/integrations/github/connections', () => {
  it('returns who created each connection, and when', async () => {
    const own = await newOrganization()
    const repository = await newRepository()
    const ref = await insertProject(own, { name: 'Followed' })
    const other = await insertProject(own)
    expect((await list(own.owner, '', own)).body.data).toEqual([])
    await connect(own, ref, repository, { userId: own.userId, workdir: 'apps/db', branchLimit: 7, changesOnly: true })
    await connect(own, other, repository, { newBranchPerPr: false })
    const [user] = await control.select().from(users).where(eq(users.id, own.userId))
    const reply = await list(own.owner, `?filter[project_ref]=${ref}`, own)
    expect(reply).toMatchObject({ status: 200 })
    expect(reply.body).toEqual({
      data: [
        {
          type: 'github_connection',
          id: expect.stringMatching(/^[0-9a-f-]{36}$/),
          attributes: {
            inserted_at: expect.stringMatching(/Z$/),
            updated_at: expect.stringMatching(/Z$/),
            installation_id: repository.installationId,
            workdir: 'apps/db',
            supabase_changes_only: true,
            branch_limit: 7,
            new_branch_per_pr: true,
            project: { id: expect.any(Number), ref, name: 'Followed' },
            repository: { id: repository.id, name: repository.name },
            user: { id: user?.number, username: user?.username, primary_email: user?.primaryEmail },
          },
        },
      ],
      links: { first: expect.stringContaining(`filter[project_ref]=${ref}`), prev: null, next: null },
    })
    const { body: nobody } = await list(own.owner, `?filter[project_ref]=${other}`, own)
    expect(nobody.data).toMatchObject([{ attributes: { user: null, new_branch_per_pr: false } }])
  })

  it('pages by project ref in both directions, and shows members of single projects only these', async () => {
    const own = await newOrganization()
    const repository = await newRepository()
    const refs: string[] = []
    for (let each = 0; each < 5; each++) refs.push(await insertProject(own))
    for (const ref of refs) await connect(own, ref, repository)
    refs.sort()
    const caller = unhurried(own.owner)
    const shown = ({ body }: { body: { data: { attributes: { project: { ref: string } } }[] } }) =>
      body.data.map(({ attributes }) => attributes.project.ref)
    const first = await list(caller(), '?page[size]=2', own)
    expect([shown(first), first.body.links.prev]).toEqual([refs.slice(0, 2), null])
    const second = await caller().get(first.body.links.next)
    expect(shown(second)).toEqual(refs.slice(2, 4))
    const third = await caller().get(second.body.links.next)
    expect([shown(third), third.body.links.next]).toEqual([refs.slice(4), null])
    const back = await caller().get(third.body.links.prev)
    expect(shown(back)).toEqual(refs.slice(2, 4))
    expect(shown(await caller().get(back.body.links.prev))).toEqual(refs.slice(0, 2))
    const above = await list(caller(), `?page[size]=2&page[before]=${refs[0]}`, own)
    expect([shown(above), above.body.links.prev]).toEqual([[], null])
    expect(shown(await caller().get(above.body.links.next))).toEqual(refs.slice(1, 3))
    const beyond = await list(caller(), `?page[size]=2&page[after]=${refs[4]}`, own)
    expect([shown(beyond), beyond.body.links.next]).toEqual([[], null])
    expect(shown(await caller().get(beyond.body.links.prev))).toEqual(refs.slice(2, 4))

    const member = await newMember(own, 'developer', refs[3])
    expect(shown(await list(member, '', own))).toEqual([refs[3]])
    expect(shown(await list(organization.owner))).not.toContain(refs[0])
  })

  it.each([
    ['page[size]=0', 'page[size]'],
    ['page[size]=101', 'page[size]'],
    ['page[after]=NO', 'page[after]'],
    ['page[before]=x', 'page[before]'],
    ['filter[project_ref]=x', 'filter[project_ref]'],
    [`page[after]=${'a'.repeat(20)}&page[before]=${'b'.repeat(20)}`, 'page[before]'],
  ])('refuses %s by name', async (query, field) => {
    const reply = await list(await newMember(organization, 'read-only'), `?${query}`)
    expect(reply).toMatchObject({ status: 400, body: { error: { code: 'bad_request.validation_failed' } } })
    expect(reply.body.error.issues).toMatchObject([{ meta: { field: `query.${field}` } }])
  })
})

/** Returns the branches that are queued, or were, for a project. */
async function askedOf(ref: string) {
  const rows = await control
    .select({ name: gitBranches.name, pullRequest: gitBranches.pullRequest, asked: gitBranches.asked })
    .from(gitBranches)
    .innerJoin(gitConnections, eq(gitConnections.id, gitBranches.connectionId))
    .where(eq(gitConnections.projectRef, ref))
  return rows.sort((a, b) => (a.name < b.name ? -1 : 1))
}

/** Makes a project whose repository cannot be reached, so that queued branches can be seen. */
async function newPlace(repository?: TestRepository, fields: Parameters<typeof connect>[3] = {}) {
  const at = repository ?? (await newRepository())
  if (!repository) await at.fault('access_tokens', 503, 1_000)
  const ref = await insertProject(organization, { status: 'ACTIVE_HEALTHY' })
  await connect(organization, ref, at, fields)
  return { ref, repository: at }
}

describe('POST /integrations/github/webhook', () => {
  it('is checked less and less often while another operation on the project runs', async () => {
    const ref = await insertProject(organization, { status: 'RESTARTING' })
    const repository = await newRepository()
    const connectionId = await connect(organization, ref, repository)
    await repository.push('main', { 'README.md': '# app' })
    const [branch] = await vi.waitFor(async () => {
      const rows = await control.select().from(gitBranches).where(eq(gitBranches.connectionId, connectionId))
      expect(rows).toMatchObject([{ attempts: 2, claim: null, lastError: null, commit: null }])
      return rows
    }, WAIT)
    expect(Number(branch?.dueAt) - Number(branch?.updatedAt)).toBeGreaterThan(3_000)
    await disconnect(ref)
  })

  it('accepts what GitHub signs, each delivery once', async () => {
    const { ref, repository } = await newPlace()
    const delivery = randomUUID()
    expect(await repository.tellPush('main', { delivery })).toMatchObject({
      status: 202,
      body: { message: 'accepted' },
    })
    expect(await repository.tellPush('main', { delivery })).toMatchObject({
      status: 202,
      body: { message: 'already received' },
    })
    expect(await askedOf(ref)).toEqual([{ name: 'main', pullRequest: null, asked: 1 }])
    await repository.tellPush('main')
    await repository.tellPull('opened', 7, 'feature')
    await repository.tellPull('closed', 8, 'feature')
    expect(await askedOf(ref)).toEqual([
      { name: 'feature', pullRequest: 8, asked: 2 },
      { name: 'main', pullRequest: null, asked: 2 },
    ])
  })

  it('ignores events that change nothing here', async () => {
    const { ref, repository } = await newPlace()
    const pull = (action: string) => repository.tellPull(action, 3, 'feature')
    const replies = [
      await deliver('ping', { zen: 'x' }),
      await deliver('installation', {}),
      await pull('labeled'),
      await repository.tellPull('opened', 3, 'feature', { fork: true }),
      await repository.tellPush('feature'),
      await deliver('push', {
        ref: 'refs/tags/v1',
        repository: { id: repository.id, default_branch: 'main' },
        installation: { id: repository.installationId },
      }),
    ]
    expect(replies.map(({ status, body }) => `${status} ${body.message}`)).toEqual([
      '202 pong',
      '202 ignored: installation',
      '202 ignored: labeled',
      '202 ignored: from a fork',
      '202 no project is connected to this branch',
      '202 ignored: not a branch',
    ])
    expect(await askedOf(ref)).toEqual([])
  })

  it("queues nothing for another's installation", async () => {
    const { ref, repository } = await newPlace()
    const place = {
      repository: { id: repository.id, default_branch: 'main' },
      installation: { id: repository.installationId + 1 },
    }
    const reply = await deliver('push', { ref: 'refs/heads/main', ...place })
    expect(reply).toMatchObject({ status: 202, body: { message: 'no project is connected to this branch' } })
    expect(await askedOf(ref)).toEqual([])
  })

  const body = JSON.stringify({
    ref: 'refs/heads/main',
    repository: { id: 1, default_branch: 'main' },
    installation: { id: 1 },
  })

  it.each([
    ['missing', ''],
    ['of another secret', signatureOf(body, 'x')],
    ['of another body', signatureOf(`${body} `)],
    ['of another form', signatureOf(body).slice(7)],
  ])('refuses a signature that is %s', async (_what, signature) => {
    const reply = await deliver('push', body, { signature })
    expect(reply).toMatchObject({ status: 401 })
    expect(reply.body.message).toContain('x-hub-signature-256')
  })

  it('limits an address that guesses, and no other address', async () => {
    const headers = { 'x-test-address': randomUUID() }
    const signature = signatureOf(body, 'guess')
    const replies = await Promise.all(Array.from({ length: 121 }, () => deliver('push', body, { signature, headers })))
    const statuses = replies.map(({ status }) => status).sort()
    expect([statuses[0], statuses.at(-1)]).toEqual([401, 429])
    const refused = replies.filter(({ status }) => status === 429)
    // A valid signature does not help while the address is refused.
    refused.push(await deliver('push', body, { headers }))
    for (const reply of refused) {
      expect(reply.status).toBe(429)
      expect(reply.headers.get('retry-after')).toMatch(/^[1-9]\d?$/)
      expect(reply.headers.get('x-ratelimit-remaining')).toBe('0')
    }
    expect((await deliver('push', body)).status).toBe(202)
  })

  it.each([
    ['x-github-event', { 'x-github-event': '' }, 400, 'header.x-github-event'],
    ['x-github-delivery', { 'x-github-delivery': 'x' }, 400, 'header.x-github-delivery'],
    [
      'a content type that is not JSON',
      { 'content-type': 'application/x-www-form-urlencoded' },
      415,
      'application/json',
    ],
  ])('refuses %s', async (_what, headers: Record<string, string>, status, text) => {
    const reply = await deliver('push', body, { headers })
    expect(reply.status).toBe(status)
    expect(reply.body.message).toContain(text)
  })

  it.each([
    ['push', '{', 'JSON'],
    ['push', '{"ref":"refs/heads/main"}', 'body.repository'],
    ['push', body.replace('main', '\\u0000'), 'body.ref'],
    ['pull_request', '{"action":"opened"}', 'body.number'],
  ])('refuses a %s whose body is %s', async (event, payload, text) => {
    const reply = await deliver(event, payload)
    expect(reply.status).toBe(400)
    expect(reply.body.message).toContain(text)
  })

  it('refuses a body that is too large', async () => {
    expect((await deliver('push', 'x'.repeat(5 * 1024 ** 2 + 1))).status).toBe(413)
  })

  it('tries a branch again after a minute if only the message of GitHub names its rate limit', async () => {
    const repository = await newRepository()
    const message = 'You have exceeded a secondary rate limit. Please wait a few minutes before you try again.'
    await repository.fault('access_tokens', 403, 1, { message })
    const { ref } = await newPlace(repository)
    const startedAt = Date.now()
    await repository.tellPush('main')
    const delayMs = async () => {
      const [row] = await control
        .select({ dueAt: gitBranches.dueAt, lastError: gitBranches.lastError })
        .from(gitBranches)
        .innerJoin(gitConnections, eq(gitConnections.id, gitBranches.connectionId))
        .where(eq(gitConnections.projectRef, ref))
      expect(row?.lastError).toContain('secondary rate limit')
      return (row?.dueAt?.getTime() ?? 0) - startedAt
    }
    await expect.poll(delayMs).toBeGreaterThanOrEqual(60_000)
  })

  it('deletes deliveries after a week', async () => {
    const [old, fresh] = [randomUUID(), randomUUID()]
    const ago = (days: number) => new Date(Date.now() - days * 86_400_000)
    await control.insert(gitDeliveries).values([
      { id: old, at: ago(8) },
      { id: fresh, at: ago(6) },
    ])
    await control.execute(`delete from heartbeats where name = 'git_deliveries'`)
    await tick()
    const left = await control
      .select()
      .from(gitDeliveries)
      .where(inArray(gitDeliveries.id, [old, fresh]))
    expect(left.map(({ id }) => id)).toEqual([fresh])
  })
})
