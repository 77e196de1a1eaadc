import { randomUUID } from 'node:crypto'
import { eq } from 'drizzle-orm'
import { beforeEach, expect, it } from 'vitest'
import { upsertUser } from '../../dev/seed.ts'
import type { SystemCtx } from '../../src/ctx.ts'
import { purgeOAuth } from '../../src/management/account/oauth/sweep.ts'
import { purgeGitDeliveries } from '../../src/management/branching/connections/git-branch-task.ts'
import { claimHourlyRun } from '../../src/model/hourly.ts'
import {
  accessTokens,
  branches,
  gitDeliveries,
  heartbeats,
  oauthApps,
  oauthGrants,
  projects,
  requestCounts,
  usedAssertions,
  webhookEndpoints,
} from '../../src/model/tables/index.ts'
import { purgeEndpoints } from '../../src/outbound/webhooks/purge.ts'
import { randomLetters } from '../../src/platform/http/common-values.ts'
import { purgeRequestCounts } from '../../src/services/gateway/purge-request-counts.ts'
import { START, useOutbox } from '../outbound/webhooks/outbox.ts'

const HOUR_MS = 3_600_000
const outbox = useOutbox()

const hoursAgo = (hours: number) => new Date(START - hours * HOUR_MS)
const daysAgo = (days: number) => hoursAgo(days * 24)

/** Endpoints whose senders were ended. */
const ended: string[] = []

function contextAt(now: Date): SystemCtx {
  const WEBHOOK_SENDERS = { idFromName: (id: string) => id, get: (id: string) => ({ end: async () => ended.push(id) }) }
  const log = { info: () => {}, error: () => {} }
  return { db: outbox.db, now: () => now, log, bindings: { WEBHOOK_SENDERS } } as unknown as SystemCtx
}

async function newOrganization(): Promise<string> {
  const endpoint = await outbox.endpointRow(await outbox.newEndpoint())
  return endpoint?.organizationId ?? ''
}

let ctx: SystemCtx

beforeEach(async () => {
  ctx = contextAt(new Date(START))
  ended.length = 0
  for (const table of [heartbeats, usedAssertions, oauthGrants, gitDeliveries, requestCounts]) {
    await outbox.db.delete(table)
  }
})

it('an hourly run is claimed once in an hour, by one of two that try at the same time', async () => {
  const both = await Promise.all([claimHourlyRun(ctx, 'job'), claimHourlyRun(ctx, 'job')])
  expect(both.toSorted()).toEqual([false, true])
  expect(await claimHourlyRun(contextAt(new Date(START + HOUR_MS - 1)), 'job')).toBe(false)
  expect(await claimHourlyRun(contextAt(new Date(START + HOUR_MS)), 'job')).toBe(true)
  expect(await claimHourlyRun(ctx, 'another job')).toBe(true)
})

it('expired authorizations, their tokens and used assertions are deleted; valid ones and personal tokens are kept', async () => {
  const { db } = outbox
  const organizationId = await newOrganization()
  const { id: userId } = await upsertUser(db, randomUUID(), `${randomUUID()}@example.com`)
  const [app] = await db.insert(oauthApps).values({ organizationId, name: 'App' }).returning()
  const appId = app?.id ?? ''
  const token = (fields: Partial<typeof accessTokens.$inferInsert>) => ({
    ...{ id: randomUUID(), hash: randomUUID(), name: 'Token', userId, ...fields },
  })
  const personal = token({ expiresAt: hoursAgo(1) })
  await db.insert(accessTokens).values(personal)
  const grant = (expiresAt: Date) => ({
    ...{ id: randomUUID(), appId, userId, organizationId, approvedBy: personal.id, scopes: [] },
    ...{ redirectUri: 'https://app.example.com', createdAt: daysAgo(90), expiresAt },
  })
  const [expired, valid] = [grant(hoursAgo(0)), grant(hoursAgo(-1))]
  await db.insert(oauthGrants).values([expired, valid])
  const ofApp = { oauthAppId: appId, organizationId, scopes: [] }
  const tokens = {
    ofExpired: token({ ...ofApp, oauthGrantId: expired.id, expiresAt: hoursAgo(-1) }),
    expired: token({ ...ofApp, oauthGrantId: valid.id, expiresAt: hoursAgo(1) }),
    valid: token({ ...ofApp, oauthGrantId: valid.id, expiresAt: hoursAgo(-1) }),
  }
  await db.insert(accessTokens).values(Object.values(tokens))
  await db.insert(usedAssertions).values([
    { id: 'expired', expiresAt: hoursAgo(1) },
    { id: 'valid', expiresAt: hoursAgo(-1) },
  ])

  await purgeOAuth(ctx)
  expect((await db.select().from(oauthGrants)).map(({ id }) => id)).toEqual([valid.id])
  const left = await db.select().from(accessTokens).where(eq(accessTokens.userId, userId))
  expect(left.map(({ id }) => id).toSorted()).toEqual([personal.id, tokens.valid.id].toSorted())
  expect((await db.select().from(usedAssertions)).map(({ id }) => id)).toEqual(['valid'])

  // The next run is due in an hour.
  await db.insert(usedAssertions).values({ id: 'late', expiresAt: hoursAgo(1) })
  await purgeOAuth(contextAt(new Date(START + HOUR_MS - 1)))
  expect(await db.select().from(usedAssertions)).toHaveLength(2)
})

it('endpoints are deleted 14 days after their project and one day after their branch were removed, with their senders', async () => {
  const { db } = outbox
  const organizationId = await newOrganization()
  async function newProject(removedAt: Date | null): Promise<string> {
    const ref = randomLetters()
    await db.insert(projects).values({
      ...{ ref, organizationId, name: ref, region: 'us-east-1', instanceSize: 'nano', status: 'ACTIVE_HEALTHY' },
      ...{ sealedPassword: 'none', sealedRunnerPassword: 'none', removedAt },
    })
    return ref
  }
  async function endpointOfBranch(removedAt: Date): Promise<string> {
    const parentRef = await newProject(null)
    const projectRef = await newProject(removedAt)
    const id = randomUUID()
    await db.insert(branches).values({ id, parentRef, projectRef, name: id, status: 'FUNCTIONS_DEPLOYED', removedAt })
    return outbox.newEndpoint({ organizationId, projectRef, branchId: id })
  }
  const ofProject = async (removedAt: Date | null) =>
    outbox.newEndpoint({ organizationId, projectRef: await newProject(removedAt) })
  const old = [await ofProject(daysAgo(15)), await endpointOfBranch(hoursAgo(25))]
  const young = [
    await outbox.newEndpoint(),
    await ofProject(daysAgo(13)),
    await ofProject(null),
    await endpointOfBranch(hoursAgo(23)),
  ]

  await purgeEndpoints(ctx)
  const left = (await db.select().from(webhookEndpoints)).map(({ id }) => id)
  expect(left).toEqual(expect.arrayContaining(young))
  for (const id of old) expect(left).not.toContain(id)
  expect(ended.toSorted()).toEqual(old.toSorted())
})

it('the record of a delivery from GitHub is deleted after a week', async () => {
  const [old, young] = [randomUUID(), randomUUID()]
  await outbox.db.insert(gitDeliveries).values([
    { id: old, at: daysAgo(7) },
    { id: young, at: hoursAgo(7 * 24 - 1) },
  ])
  await purgeGitDeliveries(ctx)
  expect((await outbox.db.select().from(gitDeliveries)).map(({ id }) => id)).toEqual([young])
})

it('counts of requests are deleted after eight days', async () => {
  const count = { projectRef: 'a', service: 'rest' as const, requests: 1 }
  await outbox.db.insert(requestCounts).values([
    { ...count, minute: hoursAgo(8 * 24 + 1) },
    { ...count, minute: daysAgo(8) },
  ])
  await purgeRequestCounts(ctx)
  expect((await outbox.db.select().from(requestCounts)).map(({ minute }) => minute)).toEqual([daysAgo(8)])
})
