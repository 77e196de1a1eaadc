import { and, asc, eq, sql } from 'drizzle-orm'
import { SupabaseManagementAPI } from 'supabase-management-js'
import { describe, expect, it, vi } from 'vitest'
import {
  accessTokens,
  auditLog,
  memberRoles,
  oauthGrants,
  organizations,
  projectClaimTokens,
  projects,
  webhookEvents,
} from '../../../src/model/tables/index.ts'
import {
  addMember,
  as,
  baseUrl,
  type Caller,
  control,
  newApp,
  newMember,
  newOrganization,
  type Reply,
  tokenOf,
  workerLogs,
} from '../../support/api.ts'
import { untilBlocked } from '../../support/blocked.ts'
import { createBranch, untilBranch } from '../../support/branches.ts'
import { claim, claimPath, claimTokenPath, NO_CLAIM, newClaimToken } from '../../support/claims.ts'
import { newPerson } from '../../support/members.ts'
import { newTokens, registerApp } from '../../support/oauth.ts'
import { newProject, runSql } from '../../support/projects.ts'
import { newReceiver } from '../../support/receiver.ts'
import { INSTANT, insertProject, newEndpoint, newPlace, placeOf, verified, WAIT } from '../../support/webhooks.ts'

const DAY_MS = 86_400_000
const later = (ms: number) => new Date(Date.now() + ms)

/** Makes a project of one organization, and another organization unrelated to the first. */
async function newPair(fields: Parameters<typeof insertProject>[1] = {}) {
  const [source, target] = [await newOrganization(), await newOrganization()]
  return { source, target, ref: await insertProject(source, fields) }
}

const organizationOf = async (ref: string) =>
  (await control.select({ id: projects.organizationId }).from(projects).where(eq(projects.ref, ref)))[0]?.id
const reach = (caller: Caller, ...refs: string[]) =>
  Promise.all(refs.map(async (ref) => (await caller.get(`/v1/projects/${ref}`)).status))
const auditOf = async (ref: string) =>
  (await control.select().from(auditLog).where(eq(auditLog.projectRef, ref)).orderBy(asc(auditLog.createdAt))).map(
    ({ action, actorUserId, organizationId, detail }) => ({ action, actorUserId, organizationId, detail }),
  )

describe('POST /v1/projects/{ref}/claim-token', () => {
  it('returns a token that is shown once and stored as a hash', async () => {
    const { source, ref } = await newPair()
    const { status, headers, body } = await source.owner.post(claimTokenPath(ref))
    expect([status, headers.get('cache-control')]).toEqual([200, 'no-store'])
    const about = {
      token_alias: `${body.token.slice(0, 8)}...${body.token.slice(-4)}`,
      created_by: source.userId,
      created_at: expect.stringMatching(INSTANT),
      expires_at: expect.stringMatching(INSTANT),
    }
    expect(body).toEqual({ token: expect.stringMatching(/^sbc_[0-9a-f]{64}$/), ...about })
    expect(Date.parse(body.expires_at) - Date.parse(body.created_at)).toBe(DAY_MS)
    const { token, ...shown } = body
    expect(await source.owner.get(claimTokenPath(ref))).toMatchObject({ status: 200, body: shown })
    expect((await source.owner.get(claimTokenPath(ref))).body).toEqual(shown)
    const rows = await control.select().from(projectClaimTokens).where(eq(projectClaimTokens.projectRef, ref))
    const audit = await auditOf(ref)
    expect(JSON.stringify([rows, audit])).not.toContain(token)
    expect(audit).toEqual([
      {
        ...{ action: 'claim_token.create', actorUserId: source.userId, organizationId: source.id },
        detail: { alias: about.token_alias },
      },
    ])
  })

  it('replaces the token before, also if two are requested at once', async () => {
    const { source, target, ref } = await newPair()
    const first = await newClaimToken(source.owner, ref)
    const both = await Promise.all([newClaimToken(source.owner, ref), newClaimToken(source.owner, ref)])
    const replies = await Promise.all([first, ...both].map((token) => target.owner.get(claimPath(target, token))))
    expect(replies.map(({ status }) => status).sort()).toEqual([200, 404, 404])
    expect(replies[0]?.status).toBe(404)
  })

  it('requires an owner or administrator of the whole organization, with a token that may write it', async () => {
    const { source, ref } = await newPair()
    const administrator = await newMember(source, 'administrator')
    const [ofProject, reader] = [await newMember(source, 'owner', ref), await newMember(source, 'read-only')]
    const narrow = await newMember(source, 'owner', undefined, { scopes: ['projects:read', 'projects:write'] })
    const { caller: app } = await newApp(source, ['projects:write', 'organizations:write'])
    expect((await administrator.post(claimTokenPath(ref))).status).toBe(200)
    expect((await app.post(claimTokenPath(ref))).status).toBe(200)
    for (const send of [(by: Caller) => by.post(claimTokenPath(ref)), (by: Caller) => by.delete(claimTokenPath(ref))]) {
      expect(await send(ofProject)).toMatchObject({
        status: 403,
        body: { message: 'Forbidden action: the role read-only does not allow organizations:write' },
      })
      expect(await send(narrow)).toMatchObject({
        status: 403,
        body: { message: 'Forbidden action: the access token lacks the scope organizations:write' },
      })
    }
    expect((await reader.get(claimTokenPath(ref))).status).toBe(200)
  })

  it('is refused for a branch without its project', async () => {
    const { source, ref } = await newPair()
    const branch = await insertProject(source, { parentRef: ref })
    expect(await source.owner.post(claimTokenPath(branch))).toMatchObject({
      status: 422,
      body: {
        message: `The branch does not allow this: a branch moves with its project: create a claim token for ${ref}`,
      },
    })
  })
})

describe('GET and DELETE /v1/projects/{ref}/claim-token', () => {
  it('answer that there is no token, and leave nothing', async () => {
    const { source, target, ref } = await newPair()
    const none = { status: 404, body: { message: 'The project has no claim token' } }
    expect(await source.owner.get(claimTokenPath(ref))).toMatchObject(none)
    expect((await source.owner.delete(claimTokenPath(ref))).status).toBe(204)
    const token = await newClaimToken(source.owner, ref)
    expect(await source.owner.delete(claimTokenPath(ref))).toMatchObject({ status: 204, body: '' })
    expect(await source.owner.get(claimTokenPath(ref))).toMatchObject(none)
    expect(await claim(target, token)).toMatchObject({ status: 404, body: NO_CLAIM })
    expect((await auditOf(ref)).map(({ action }) => action)).toEqual(['claim_token.create', 'claim_token.delete'])
  })
})

describe('GET /v1/organizations/{slug}/project-claim/{token}', () => {
  it('shows a stranger the name of the project and the changes of a claim, and changes nothing', async () => {
    const { source, target, ref } = await newPair({ name: 'Shop' })
    await insertProject(source, { parentRef: ref })
    await control.update(organizations).set({ plan: 'pro' }).where(eq(organizations.id, target.id))
    const { body: made } = await source.owner.post(claimTokenPath(ref))
    const { status, body } = await target.owner.get(claimPath(target, made.token))
    const { preview, ...about } = body
    expect([status, about]).toEqual([
      200,
      {
        project: { ref, name: 'Shop' },
        ...{ expires_at: made.expires_at, created_at: made.created_at, created_by: source.userId },
      },
    ])
    const keysOf = (findings: { key: string }[]) => findings.map(({ key }) => key)
    expect({
      ...preview,
      ...{ errors: keysOf(preview.errors), warnings: keysOf(preview.warnings), info: keysOf(preview.info) },
    }).toEqual({
      valid: true,
      errors: [],
      warnings: ['members_lose_access', 'plan_changes', 'credentials_stay'],
      info: ['members_gain_access', 'branches_move', 'organization_webhooks_change'],
      members_exceeding_free_project_limit: [],
      source_subscription_plan: 'enterprise',
      target_subscription_plan: 'pro',
    })
    expect(await reach(target.owner, ref)).toEqual([404])
    expect(await organizationOf(ref)).toBe(source.id)
  })

  it('requires an owner or administrator of the organization, like the claim itself', async () => {
    const { source, target, ref } = await newPair()
    const token = await newClaimToken(source.owner, ref)
    const [developer, ofProject] = [await newMember(target, 'developer'), await newMember(target, 'owner', ref)]
    const reader = await newMember(target, 'owner', undefined, { scopes: ['organizations:read', 'projects:write'] })
    for (const caller of [developer, ofProject, reader])
      for (const reply of [await caller.get(claimPath(target, token)), await claim(target, token, caller)])
        expect(reply).toMatchObject({ status: 403, body: { message: expect.stringContaining('organizations:write') } })
    expect((await source.owner.get(claimPath(target, token))).status).toBe(404)
    const administrator = await newMember(target, 'administrator')
    expect((await claim(target, token, administrator)).status).toBe(204)
    expect(await organizationOf(ref)).toBe(target.id)
  })
})

describe('POST /v1/organizations/{slug}/project-claim/{token}', () => {
  it('moves a running project with everything that belongs to it, and notifies both organizations', async () => {
    const [source, target] = [await newOrganization(), await newOrganization()]
    const ref = await newProject(source)
    const branch = await createBranch(source.owner, ref)
    await untilBranch(source.owner, branch, 'FUNCTIONS_DEPLOYED')
    await runSql(source.owner, ref, 'create table kept (n int); insert into kept values (7)')
    const guest = await newPerson(source, 'developer', ref)
    const heard = { source: await newReceiver(), target: await newReceiver(), project: await newReceiver() }
    await newEndpoint(await newPlace('organizations', source), { url: heard.source.url })
    await newEndpoint(await newPlace('organizations', target), { url: heard.target.url })
    await newEndpoint(placeOf(source, ref), { url: heard.project.url })
    const token = await newClaimToken(source.owner, ref)

    expect(await claim(target, token)).toMatchObject({ status: 204, body: '' })
    const refs = [ref, branch.project_ref]
    expect(await reach(target.owner, ...refs)).toEqual([200, 200])
    expect(await reach(source.owner, ...refs)).toEqual([404, 404])
    expect(await reach(guest.caller, ...refs)).toEqual([404, 404])
    expect((await runSql(target.owner, ref, 'select n from kept')).body).toEqual([{ n: 7 }])
    expect(await claim(target, token)).toMatchObject({ status: 404, body: NO_CLAIM })

    await vi.waitFor(() => {
      expect(heard.source.received).toHaveLength(2)
      expect(heard.target.received).toHaveLength(1)
      expect(heard.project.received).toHaveLength(1)
    }, WAIT)
    for (const [receiver, slug] of [
      [heard.source, source.slug],
      [heard.target, target.slug],
      [heard.project, target.slug],
    ] as const) {
      const sent = receiver.received.map((one) => verified(one))
      expect(sent.find(({ type }) => type === 'v1.project.transferred')).toMatchObject({
        payload: {
          ...{ organization_slug: slug, project_ref: ref },
          ...{ source: { organization_slug: source.slug }, target: { organization_slug: target.slug } },
          actor: { user_id: target.userId },
        },
      })
    }
    const removed = heard.source.received.map((one) => verified(one)).map(({ type }) => type)
    expect(removed).toContain('v1.organization.member.removed')
    const detail = { source: source.slug, target: target.slug }
    const traces = (await auditOf(ref)).filter(({ action }) => action === 'project.claim')
    expect(traces).toHaveLength(2)
    for (const { id } of [source, target])
      expect(traces).toContainEqual({
        ...{ action: 'project.claim', actorUserId: target.userId, organizationId: id },
        detail,
      })
  })

  it('gives the project to one of two simultaneous claims', async () => {
    const { source, target, ref } = await newPair()
    const other = await newOrganization()
    const token = await newClaimToken(source.owner, ref)
    const asked = await control.transaction(async (tx) => {
      await tx.select().from(organizations).where(eq(organizations.id, source.id)).for('update')
      const { rows } = await tx.execute(sql`select pg_backend_pid() as pid`)
      const waiting = sql`select from pg_stat_activity where ${rows[0]?.pid}::int = any (pg_blocking_pids(pid))
        or pid in (select b.pid from pg_stat_activity a, pg_stat_activity b
          where ${rows[0]?.pid}::int = any (pg_blocking_pids(a.pid)) and a.pid = any (pg_blocking_pids(b.pid)))`
      const replies = [claim(target, token), claim(other, token)]
      await vi.waitFor(async () => expect((await control.execute(waiting)).rows.length).toBe(2), WAIT)
      return { replies }
    })
    const replies = await Promise.all(asked.replies)
    expect(replies.map(({ status }) => status).sort()).toEqual([204, 404])
    expect(replies.find(({ status }) => status === 404)?.body).toEqual(NO_CLAIM)
    const sent = await control.select().from(webhookEvents).where(eq(webhookEvents.projectRef, ref))
    expect(sent).toHaveLength(2)
  })

  it('is refused if the token ended while the claim waited', async () => {
    const { source, target, ref } = await newPair()
    const token = await newClaimToken(source.owner, ref)
    const { asked } = await control.transaction(async (tx) => {
      await tx.select().from(projects).where(eq(projects.ref, ref)).for('update')
      const blocked = await untilBlocked(tx, () => claim(target, token))
      await tx.delete(projectClaimTokens).where(eq(projectClaimTokens.projectRef, ref))
      return blocked
    })
    expect(await asked).toMatchObject({ status: 404, body: NO_CLAIM })
    expect(await organizationOf(ref)).toBe(source.id)
  })

  it.each<[string, (pair: Awaited<ReturnType<typeof newPair>>) => Promise<unknown>]>([
    ['transferred', ({ source, target, ref }) => transferAway(source, target, ref)],
    ['deleted', async ({ source, ref }) => source.owner.delete(`/v1/projects/${ref}`)],
    [
      'no longer the business of who made it',
      ({ source }) =>
        control
          .update(memberRoles)
          .set({ role: 'developer' })
          .where(and(eq(memberRoles.organizationId, source.id), eq(memberRoles.userId, source.userId))),
    ],
    [
      'given by a token that was revoked',
      ({ source }) =>
        control.update(accessTokens).set({ revokedAt: new Date() }).where(eq(accessTokens.userId, source.userId)),
    ],
  ])('is refused once the project is %s', async (_what, end) => {
    const pair = await newPair()
    const token = await newClaimToken(pair.source.owner, pair.ref)
    expect((await pair.target.owner.get(claimPath(pair.target, token))).status).toBe(200)
    await end(pair)
    for (const reply of [await pair.target.owner.get(claimPath(pair.target, token)), await claim(pair.target, token)])
      expect(reply).toMatchObject({ status: 404, body: NO_CLAIM })
  })

  it('is refused a day after the token was made, or after the end of the access token that made it', async () => {
    const { source, target, ref } = await newPair()
    const { body } = await source.owner.post(claimTokenPath(ref))
    const [before, after] = [-1, 0].map((ms) => target.owner.at(new Date(Date.parse(body.expires_at) + ms)))
    if (!before || !after) throw new Error('no caller')
    expect((await before.get(claimPath(target, body.token))).status).toBe(200)
    expect((await after.get(claimPath(target, body.token))).body).toEqual(NO_CLAIM)
    expect((await claim(target, body.token, after)).body).toEqual(NO_CLAIM)
    expect((await source.owner.at(later(DAY_MS)).get(claimTokenPath(ref))).status).toBe(404)
    const brief = await tokenOf(source.userId, { expiresAt: later(3_600_000) })
    const token = await newClaimToken(brief, ref)
    expect((await target.owner.get(claimPath(target, token))).status).toBe(200)
    expect((await target.owner.at(later(3_600_000)).get(claimPath(target, token))).status).toBe(404)
  })

  it("is valid longer than an application's token, and ends with the approval of the application", async () => {
    const { source, target, ref } = await newPair()
    const app = await registerApp(source, { scopes: ['projects:write', 'organizations:write'] })
    const { access_token } = await newTokens(app, source)
    const token = await newClaimToken(as(access_token), ref)
    expect((await target.owner.at(later(2 * 3_600_000)).get(claimPath(target, token))).status).toBe(200)
    const ofApp = eq(oauthGrants.appId, app.id)
    await control
      .update(oauthGrants)
      .set({ expiresAt: later(3_600_000) })
      .where(ofApp)
    expect((await target.owner.at(later(2 * 3_600_000)).get(claimPath(target, token))).status).toBe(404)
    expect((await target.owner.get(claimPath(target, token))).status).toBe(200)
    await control.delete(oauthGrants).where(ofApp)
    expect((await target.owner.get(claimPath(target, token))).body).toEqual(NO_CLAIM)
  })

  it('refuses what a transfer refuses, with the same errors, and keeps the token valid', async () => {
    const { source, target, ref } = await newPair({ name: 'Same' })
    await addMember(source.id, target.userId, 'administrator')
    const token = await newClaimToken(source.owner, ref)
    const expectRefused = async (reply: Reply, message: string) => {
      expect(reply).toMatchObject({ status: 422, body: { message: `The project cannot be transferred: ${message}` } })
      expect(await organizationOf(ref)).toBe(source.id)
    }
    const taken = await insertProject(target, { name: 'Same' })
    await expectRefused(await claim(target, token), `${target.slug} has a project of this name`)
    await control.update(projects).set({ name: 'Other' }).where(eq(projects.ref, taken))
    const same = `The project already belongs to ${source.slug}`
    await expectRefused(await claim(source, token, target.owner), same)
    const { preview } = (await target.owner.get(claimPath(source, token))).body
    expect([preview.valid, preview.errors]).toEqual([false, [{ key: 'same_organization', message: same }]])
    await insertProject(source, { parentRef: ref })
    await control.update(organizations).set({ plan: 'free' }).where(eq(organizations.id, target.id))
    const branches = `The project has 1 branch, and the plan free of ${target.slug} does not include branching`
    await expectRefused(await claim(target, token), branches)
    await control.update(organizations).set({ plan: 'pro' }).where(eq(organizations.id, target.id))
    await control.update(projects).set({ status: 'PAUSING' }).where(eq(projects.ref, ref))
    await expectRefused(
      await claim(target, token),
      'An operation on the project or one of its branches is running: wait until it has ended',
    )
    await control.update(projects).set({ status: 'INACTIVE' }).where(eq(projects.ref, ref))
    expect((await claim(target, token)).status).toBe(204)
  })

  it('counts guesses apart from requests for what the caller sees, and logs no token', async () => {
    const { source, target, ref } = await newPair()
    const token = await newClaimToken(source.owner, ref)
    const guesser = (await newPerson(target, 'owner')).caller.at(new Date())
    expect((await guesser.get(claimPath(target, token))).status).toBe(200)
    expect(await guesser.get(claimPath(target, 'sbc_guess'))).toMatchObject({ status: 404, body: NO_CLAIM })
    expect(await claim(target, 'x', guesser)).toMatchObject({ status: 404, body: NO_CLAIM })
    expect((await guesser.get('/v1/profile')).headers.get('x-ratelimit-remaining')).toBe('119')
    const long = await guesser.get(claimPath(target, 'x'.repeat(1001)))
    expect([long.status, long.body.message]).toEqual([400, expect.stringContaining('path.token')])
    expect((await claim(target, 'x'.repeat(1001), guesser)).status).toBe(400)
    await guesser.put(claimPath(target, token))
    const path = `/v1/organizations/${target.slug}/project-claim/…`
    await vi.waitFor(async () => expect(await workerLogs(path)).toHaveLength(6), WAIT)
    expect(await workerLogs(token)).toEqual([])
  })
})

it('supabase-management-js makes, reads, deletes and redeems claim tokens', async () => {
  const { source, target, ref } = await newPair({ name: 'Shop' })
  const [theirs, ours] = [source, target].map(
    ({ owner }) => new SupabaseManagementAPI({ accessToken: owner.token ?? '', baseUrl }),
  )
  if (!theirs || !ours) throw new Error('no client')
  const { data: first } = await theirs.createProjectClaimToken(ref)
  const { token: _token, ...shown } = first
  expect((await theirs.getProjectClaimToken(ref)).data).toEqual(shown)
  expect((await theirs.deleteProjectClaimToken(ref)).status).toBe(204)
  await expect(ours.getOrganizationProjectClaim(target.slug, first.token)).rejects.toThrow(/Project claim not found/)
  const { data: second } = await theirs.createProjectClaimToken(ref)
  const { data: claimed } = await ours.getOrganizationProjectClaim(target.slug, second.token)
  expect(claimed).toMatchObject({ project: { ref, name: 'Shop' }, preview: { valid: true } })
  expect((await ours.claimProjectForOrganization(target.slug, second.token)).status).toBe(204)
  expect(await organizationOf(ref)).toBe(target.id)
})

async function transferAway(
  source: { userId: string; owner: Caller },
  target: { id: string; slug: string },
  ref: string,
) {
  await addMember(target.id, source.userId, 'owner')
  const reply = await source.owner.post(`/v2/projects/${ref}/transfers`, {
    data: { type: 'project_transfer_input', attributes: { target_organization_slug: target.slug } },
  })
  expect(reply.status).toBe(200)
}
