import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { eq } from 'drizzle-orm'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { branches, memberRoles, privateLinkAssociations, projects } from '../../../src/model/tables/index.ts'
import { randomLetters } from '../../../src/platform/http/common-values.ts'
import { as } from '../../support/api.ts'
import { extended } from '../../support/extended.ts'
import {
  CLUSTER,
  OF_OTHER_HOST,
  OF_REPLICA,
  ON_OTHER_HOST,
  REPLICA,
  randomAccount,
  startSharingInstallation,
  WAIT,
  WITH_REPLICA,
} from '../../support/private-link.ts'

let installation: Awaited<ReturnType<typeof startSharingInstallation>>
beforeAll(async () => {
  installation = await startSharingInstallation()
})
afterAll(() => installation.stop())

describe('an association', () => {
  it('is made, accepted by the account, and deleted', async () => {
    const place = await installation.newPlace()
    const account = randomAccount()
    expect(await place.list()).toEqual([])
    const created = await place.share(account, { account_name: 'Warehouse' })
    const association = {
      type: 'private_link_association',
      id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      attributes: {
        aws_account_id: account,
        account_name: 'Warehouse',
        status: 'CREATING',
        shared_at: null,
        database_type: 'PRIMARY',
        database_identifier: place.ref,
        custom_dns_name: '127.0.0.1',
        resource_access_manager_resource_config_id: 'rcfg-0123456789abcdef0',
        resource_access_manager_resource_config_arn: CLUSTER,
      },
    }
    expect([created.status, created.body]).toEqual([201, { data: association }])

    await place.until('READY')
    const share = installation.onlyShareWith(account)
    expect(share).toMatchObject({ name: `pilothouse-${place.ref}-${account}`, resource: { entity: CLUSTER } })
    const shared = {
      ...created.body.data.attributes,
      status: 'READY',
      shared_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
      resource_access_manager_share_arn: share.arn,
    }
    expect(await place.list()).toEqual([{ ...created.body.data, attributes: shared }])
    expect((await place.rows())[0]?.dueAt?.getTime()).toBeGreaterThan(Date.now())

    await place.runCheck()
    await place.until('READY')
    share.principal.status = 'ASSOCIATED'
    await place.runCheck()
    await place.until('ASSOCIATION_ACCEPTED')

    expect(await place.remove(account)).toMatchObject({ status: 204, body: '' })
    expect((await place.list())[0].attributes.status).toBe('DELETING')
    await place.until()
    expect(share.status).toBe('DELETED')
    expect(await place.remove(account)).toMatchObject({ status: 204 })
    expect(await place.auditActions()).toEqual([
      'private_link.create',
      'private_link.ready',
      'private_link.association_accepted',
      'private_link.delete',
      'private_link.removed',
    ])
  })

  it('with an account of the same AWS organization needs no acceptance', async () => {
    const place = await installation.newPlace()
    const account = randomAccount()
    installation.ram.organization.add(account)
    await place.share(account)
    await place.until('ASSOCIATION_ACCEPTED')
    expect((await place.list())[0].attributes.shared_at).not.toBeNull()
  })

  extended('includes a read replica', async () => {
    const replicas = [{ identifier: REPLICA, endpointId: 'ep-1', host: 'ep-1.example.com', isReady: true }]
    const place = await installation.newPlace({ ref: WITH_REPLICA, engineState: { replicas } })
    const neon = await installation.serveAtNeon()
    const account = randomAccount()
    const share = (attributes: object) =>
      as(place.owner.token, {}, neon.origin).post(place.path, {
        data: { type: 'private_link_association', attributes: { aws_account_id: account, ...attributes } },
      })
    try {
      expect((await share({ database_identifier: REPLICA })).body.data.attributes).toMatchObject({
        database_type: 'READ_REPLICA',
        database_identifier: REPLICA,
        custom_dns_name: 'ep-1.example.com',
        resource_access_manager_resource_config_arn: OF_REPLICA,
      })
      await place.until('READY')
      expect(installation.onlyShareWith(account).resource.entity).toBe(OF_REPLICA)
      // A project at Neon does not have this cluster.
      expect(await share({})).toMatchObject({
        status: 400,
        body: { error: { description: `the database ${WITH_REPLICA} has no resource configuration` } },
      })
    } finally {
      await neon.stop()
    }
    expect(await place.remove(account)).toMatchObject({ status: 204 })
    await place.until('READY')
    expect(await place.remove(account, REPLICA)).toMatchObject({ status: 204 })
    await place.until()
  })

  it('on another host than that of the settings needs a configuration of its own, and shows its present host', async () => {
    const stateAt = (databaseHost: string) => ({ host: 'two', at: { databaseHost, databasePort: 5432 } })
    const unnamed = await installation.newPlace({ engineState: stateAt('two.example.com') })
    expect(await unnamed.share(randomAccount())).toMatchObject({
      status: 400,
      body: { error: { description: `the database ${unnamed.ref} has no resource configuration` } },
    })
    const named = await installation.newPlace({ ref: ON_OTHER_HOST, engineState: stateAt('two.example.com') })
    const { body } = await named.share(randomAccount())
    expect(body.data.attributes).toMatchObject({
      custom_dns_name: 'two.example.com',
      resource_access_manager_resource_config_arn: OF_OTHER_HOST,
    })
    const engineState = stateAt('three.example.com')
    await installation.db.update(projects).set({ engineState }).where(eq(projects.ref, ON_OTHER_HOST))
    expect((await named.list())[0].attributes.custom_dns_name).toBe('three.example.com')
  })

  extended('is refused while another one with the account exists, and made anew once that has expired', async () => {
    const place = await installation.newPlace()
    const { account, share } = await place.invite()
    expect(await place.share(account)).toMatchObject({
      status: 409,
      body: { error: { code: 'conflict.private_link_association', description: 'its status is READY' } },
    })
    share.principal.status = 'DISASSOCIATED'
    await place.runCheck()
    await place.until('ASSOCIATION_REQUEST_EXPIRED')
    expect((await place.rows())[0]?.dueAt).toBeNull()
    expect(await place.share(account)).toMatchObject({ status: 201 })
    await place.until('READY')
    expect(installation.ram.sharesWith(account).map(({ status }) => status)).toEqual(['DELETED', 'ACTIVE'])
  })

  it("fails with AWS's error, and is retried by the next request", async () => {
    const place = await installation.newPlace()
    const account = randomAccount()
    installation.ram.fault({
      path: '/createresourceshare',
      about: account,
      status: 400,
      code: 'ResourceShareLimitExceededException',
    })
    await place.share(account)
    await place.until('CREATION_FAILED')
    expect((await place.rows())[0]?.lastError).toContain('AWS RAM answered 400 ResourceShareLimitExceededException')
    expect((await place.list())[0].attributes.shared_at).toBeNull()
    await place.share(account)
    await vi.waitFor(async () => expect((await place.rows()).at(-1)?.status).toBe('READY'), WAIT)
    expect(installation.ram.sharesWith(account)).toHaveLength(1)
  })

  it.each([
    ['the database cannot be shared', 'resource', 'FAILED', 'CREATION_FAILED'],
    ['the database is shared no more', 'resource', 'DISASSOCIATED', 'CREATION_FAILED'],
    ['the account has declined', 'principal', 'FAILED', 'ASSOCIATION_REQUEST_EXPIRED'],
    ['the account has left', 'principal', 'DISASSOCIATED', 'ASSOCIATION_REQUEST_EXPIRED'],
  ] as const)('is reported as ended when %s', async (_, part, state, status) => {
    const place = await installation.newPlace()
    const { share } = await place.invite()
    share[part].status = state
    await place.runCheck()
    await place.until(status)
  })

  it('is reported as ended when its share is gone', async () => {
    const place = await installation.newPlace()
    const { account, share } = await place.invite()
    installation.ram.hidden.add(share.arn)
    await place.runCheck()
    await place.until('CREATION_FAILED')
    await place.change({ shareAskedAt: new Date(Date.now() - 6 * 60_000) })
    expect(await place.remove(account)).toMatchObject({ status: 204 })
    await place.until()
  })
})

describe('if a request to AWS fails', () => {
  extended('one share is made, although the answer to the request for it was lost', async () => {
    const place = await installation.newPlace()
    const account = randomAccount()
    installation.ram.fault({ path: '/createresourceshare', about: account, status: 0, after: true })
    await place.share(account)
    await place.until('READY')
    expect(installation.onlyShareWith(account).arn).toBe((await place.rows())[0]?.shareArn)
  })

  extended('a deletion during the creation of the share leaves neither', async () => {
    const place = await installation.newPlace()
    const account = randomAccount()
    const answer = Promise.withResolvers<void>()
    installation.ram.fault({
      path: '/createresourceshare',
      about: account,
      status: 200,
      after: true,
      until: answer.promise,
    })
    await place.share(account)
    await vi.waitFor(() => expect(installation.ram.sharesWith(account)).toHaveLength(1), WAIT)
    expect(await place.remove(account)).toMatchObject({ status: 204 })
    await installation.tick()
    await place.until('DELETING')
    expect(installation.onlyShareWith(account).status).toBe('ACTIVE')
    answer.resolve()
    await place.until()
    expect(installation.onlyShareWith(account).status).toBe('DELETED')
  })
})

describe('the shares of a project end', () => {
  extended('with the project', async () => {
    const place = await installation.newPlace()
    const { share } = await place.invite()
    expect((await place.owner.delete(`/v1/projects/${place.ref}`)).status).toBe(200)
    await place.until()
    expect(share.status).toBe('DELETED')
  })

  extended('with the branch, and those of its parent do not', async () => {
    const parent = await installation.newPlace()
    const parentRef = parent.ref
    const branch = await installation.newPlace({ parentRef }, parent)
    const status = 'FUNCTIONS_DEPLOYED' as const
    await installation.db.insert(branches).values({ projectRef: branch.ref, parentRef, name: 'dev', status })
    const [ofParent, ofBranch] = [await parent.invite(), await branch.invite()]
    expect((await parent.owner.delete(`/v1/branches/${branch.ref}`)).status).toBe(200)
    await branch.until()
    expect([ofParent.share.status, ofBranch.share.status]).toEqual(['ACTIVE', 'DELETED'])
  })

  extended('with its transfer, whose preview reports it', async () => {
    const place = await installation.newPlace()
    const { share } = await place.invite()
    const target = await installation.newOrganization()
    const owner = { organizationId: target.id, userId: place.userId, role: 'owner' as const }
    await installation.db.insert(memberRoles).values(owner)
    const body = { data: { type: 'project_transfer_input', attributes: { target_organization_slug: target.slug } } }
    const preview = await place.owner.post(`/v2/projects/${place.ref}/transfers/previews`, body)
    expect(preview.body.data.attributes.warnings).toContainEqual({
      key: 'private_links_end',
      message: 'The project will no longer be shared with 1 AWS account',
    })
    expect((await place.owner.post(`/v2/projects/${place.ref}/transfers`, body)).status).toBe(200)
    await place.until()
    expect(share.status).toBe('DELETED')
  })

  extended('with the plan that covers them', async () => {
    const place = await installation.newPlace()
    const { share } = await place.invite()
    const env = { ...process.env, DATABASE_URL: installation.controlUrl }
    const plan = (name: string) =>
      promisify(execFile)('node', ['dev/admin.ts', 'organization', 'plan', place.slug, name], { env })
    await plan('enterprise')
    await place.until('READY')
    await plan('pro')
    await place.until('DELETING')
    await vi.waitFor(async () => {
      await installation.tick()
      expect(await place.rows()).toEqual([])
    }, WAIT)
    expect(share.status).toBe('DELETED')
    expect(await place.share(randomAccount())).toMatchObject({
      status: 402,
      body: {
        error: {
          code: 'payment_required.private_link',
          message: 'Payment Required: This feature requires the Team, or Enterprise organization plan.',
          description: 'its plan is pro',
        },
      },
    })
  })
})

extended('one of several requests for the same account succeeds', async () => {
  const place = await installation.newPlace()
  const account = randomAccount()
  const replies = await Promise.all([1, 2, 3].map(() => place.share(account)))
  expect(replies.map(({ status }) => status).sort()).toEqual([201, 409, 409])
  await place.until('READY')
  expect(installation.ram.sharesWith(account)).toHaveLength(1)
})

it('a database of another project is refused by its field', async () => {
  const place = await installation.newPlace()
  for (const database_identifier of ['x', REPLICA, randomLetters()]) {
    expect(await place.share(randomAccount(), { database_identifier })).toMatchObject({
      status: 400,
      body: { error: { issues: [{ meta: { field: 'body.data.attributes.database_identifier' } }] } },
    })
  }
  expect(await place.rows()).toEqual([])
})

it('a project has at most 100 associations', async () => {
  const place = await installation.newPlace()
  const row = { projectRef: place.ref, databaseType: 'PRIMARY' as const, databaseIdentifier: place.ref, dnsName: 'x' }
  const others = Array.from({ length: 100 }, (_, n) => ({
    ...{ ...row, resourceConfigurationArn: CLUSTER, status: 'CREATION_FAILED' as const, createdAt: new Date() },
    awsAccountId: String(n).padStart(12, '0'),
  }))
  await installation.db.insert(privateLinkAssociations).values(others)
  expect(await place.share(randomAccount())).toMatchObject({
    status: 422,
    body: { error: { code: 'unprocessable.too_many_private_links' } },
  })
  expect(await place.list()).toHaveLength(100)
})
