import { and, eq } from 'drizzle-orm'
import { beforeAll, describe, expect, inject, it, vi } from 'vitest'
import { readConfig } from '../../../src/config.ts'
import { auditLog, organizations, privateLinkAssociations } from '../../../src/model/tables/index.ts'
import { type Caller, control, newMember, newOrganization, type TestOrganization } from '../../support/api.ts'
import { WAIT_MS } from '../../support/wait.ts'
import { insertProject } from '../../support/webhooks.ts'

const ACCOUNT = '999900001111'

let organization: TestOrganization
let ref: string
let path: string
beforeAll(async () => {
  organization = await newOrganization()
  ref = await insertProject(organization)
  path = `/v2/projects/${ref}/private-link/associations`
})

const share = (caller: Caller, attributes: unknown, at = path) =>
  caller.post(at, { data: { type: 'private_link_association', attributes } })

describe('an installation that shares no databases', () => {
  it('lists none and creates none, and says why', async () => {
    const { owner } = organization
    expect(await owner.get(path)).toMatchObject({ status: 200, body: { data: [] } })
    expect((await share(owner, { aws_account_id: ACCOUNT })).body).toMatchObject({
      error: {
        code: 'bad_request.private_link',
        message: 'Bad Request: Private link is not available',
        description: 'private link is not configured on this installation',
      },
    })
    expect((await owner.get(path)).body).toEqual({ data: [] })
  })

  it('reports a plan that would not cover it', async () => {
    const { owner, id } = await newOrganization()
    await control.update(organizations).set({ plan: 'pro' }).where(eq(organizations.id, id))
    const at = `/v2/projects/${await insertProject({ ...organization, id })}/private-link/associations`
    expect(await share(owner, { aws_account_id: ACCOUNT }, at)).toMatchObject({
      status: 402,
      body: { error: { code: 'payment_required.private_link', description: 'its plan is pro' } },
    })
    expect((await owner.get(at)).status).toBe(200)
    expect((await owner.delete(`${at}/aws-account/${ACCOUNT}`)).status).toBe(204)
  })

  it('still deletes a share that AWS was never asked for', async () => {
    const row = { projectRef: ref, awsAccountId: ACCOUNT, databaseIdentifier: ref, dnsName: 'db.example.com' }
    const status = 'CREATION_FAILED' as const
    const resourceConfigurationArn = 'arn:aws:vpc-lattice:eu-central-1:111122223333:resourceconfiguration/rcfg-x'
    await control
      .insert(privateLinkAssociations)
      .values({ ...row, databaseType: 'PRIMARY', resourceConfigurationArn, status, createdAt: new Date() })
    expect((await organization.owner.delete(`${path}/aws-account/${ACCOUNT}/database/${ref}`)).status).toBe(204)
    const rows = () => control.select().from(privateLinkAssociations).where(eq(privateLinkAssociations.projectRef, ref))
    await vi.waitFor(async () => expect(await rows()).toEqual([]), { timeout: WAIT_MS })
  })

  it.each([undefined, 'x'])('has all settings for it or none (region of the ARN: %s)', (region) => {
    const base = {
      ...{
        BASE_URL: 'https://api.example.com',
        DATABASE_URL: inject('controlUrl'),
        ENCRYPTION_KEY: inject('encryptionKey'),
      },
      NEON_PROXY: 'http://proxy.example.com',
      ...{ S3_ENDPOINT: 'https://s3.example.com', S3_BUCKET: 'b', S3_ACCESS_KEY_ID: 'a', S3_SECRET_ACCESS_KEY: 's' },
      ...{ ENGINE: 'neon', NEON_API_KEY: 'n' },
    }
    const arn = `arn:aws:vpc-lattice:${region ?? ''}:111122223333:resourceconfiguration/rcfg-0123456789abcdef0`
    const read = (settings: object) => () => readConfig({ ...base, ...settings } as never)
    expect(read({})).not.toThrow()
    expect(read({ PRIVATE_LINK_RESOURCE_CONFIGURATIONS: arn })).toThrow(
      region ? /PRIVATE_LINK_AWS_ACCESS_KEY_ID.*PRIVATE_LINK_AWS_SECRET_ACCESS_KEY/ : /must be ARNs of VPC Lattice/,
    )
    expect(read({ PRIVATE_LINK_AWS_ACCESS_KEY_ID: 'AKID' })).toThrow('PRIVATE_LINK_RESOURCE_CONFIGURATIONS')
  })
})

it.each([
  [{}, 'body.data.attributes.aws_account_id'],
  [{ aws_account_id: '12345678901' }, 'body.data.attributes.aws_account_id'],
  [{ aws_account_id: '1234567890123' }, 'body.data.attributes.aws_account_id'],
  [{ aws_account_id: '12345678901a' }, 'body.data.attributes.aws_account_id'],
  [{ aws_account_id: 123456789012 }, 'body.data.attributes.aws_account_id'],
  [{ aws_account_id: ACCOUNT, account_name: 'n'.repeat(129) }, 'body.data.attributes.account_name'],
  [{ aws_account_id: ACCOUNT, account_name: '\0' }, 'body.data.attributes.account_name'],
  [{ aws_account_id: ACCOUNT, database_identifier: '' }, 'body.data.attributes.database_identifier'],
])('refuses %j and names %s', async (attributes, field) => {
  expect(await share(organization.owner, attributes)).toMatchObject({
    status: 400,
    body: { error: { code: 'bad_request.validation_failed', issues: [{ meta: { field } }] } },
  })
})

it('refuses an invalid AWS account in a path, and deletes nothing twice', async () => {
  const { owner } = organization
  for (const rest of ['aws-account/12', `aws-account/12/database/${ref}`]) {
    expect(await owner.delete(`${path}/${rest}`)).toMatchObject({
      status: 400,
      body: { error: { issues: [{ meta: { field: 'path.aws_account_id' } }] } },
    })
  }
  expect((await owner.delete(`${path}/aws-account/111111111111`)).status).toBe(204)
  const deleted = and(eq(auditLog.projectRef, ref), eq(auditLog.action, 'private_link.delete'))
  const detail = { aws_account_id: '111111111111' }
  expect(await control.select().from(auditLog).where(deleted)).not.toContainEqual(expect.objectContaining({ detail }))
})

it('can be changed by administrators, and seen by members', async () => {
  for (const role of ['read-only', 'developer'] as const) {
    const member = await newMember(organization, role)
    expect((await member.get(path)).status).toBe(200)
    const replies = [
      await share(member, { aws_account_id: ACCOUNT }),
      await member.delete(`${path}/aws-account/${ACCOUNT}`),
    ]
    expect(replies.map(({ status }) => status)).toEqual([403, 403])
  }
  const administrator = await newMember(organization, 'administrator')
  expect((await administrator.delete(`${path}/aws-account/${ACCOUNT}`)).status).toBe(204)
  const { owner } = await newOrganization()
  expect((await owner.get(path)).status).toBe(404)
  expect((await share(owner, { aws_account_id: ACCOUNT })).status).toBe(404)
})
