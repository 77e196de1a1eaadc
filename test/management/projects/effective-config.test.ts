import { createHmac } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import { newApp, newMember, newOrganization, type TestOrganization } from '../../support/api.ts'
import { newProject } from '../../support/projects.ts'

let organization: TestOrganization
let ref: string
beforeAll(async () => {
  organization = await newOrganization()
  ref = await newProject(organization)
})

const config = async () => (await organization.owner.get(`/v2/projects/${ref}/config`)).body.data.attributes

const FEATURE = { enabled: false }

describe('GET /v2/projects/{ref}/config', () => {
  it('returns the defaults of unset fields', async () => {
    const reply = await organization.owner.get(`/v2/projects/${ref}/config`)
    expect(reply).toMatchObject({ status: 200, body: { data: { type: 'project_config', id: ref } } })
    const { auth, ...others } = reply.body.data.attributes
    expect(others).toEqual({
      database: {
        major_version: 17,
        ssl_enforced: false,
        network_restrictions: {
          entitlement: 'allowed',
          status: 'applied',
          allowed_cidrs: [
            { address: '0.0.0.0/0', type: 'v4' },
            { address: '::/0', type: 'v6' },
          ],
        },
        postgres_settings: expect.objectContaining({
          max_connections: expect.any(Number),
          shared_buffers: expect.stringMatching(/^\d+[kMG]B$/),
          track_commit_timestamp: false,
          work_mem: '2MB',
        }),
      },
      pooler: {
        pool_mode: 'session',
        ignore_startup_parameters: '',
        server_idle_timeout: 600,
        server_lifetime: 3_600,
        query_wait_timeout: 120,
        reserve_pool_size: 0,
        default_pool_size: 20,
        max_client_conn: 100,
      },
      api: {
        db_schema: 'public,graphql_public',
        db_extra_search_path: 'public, extensions',
        max_rows: 1_000,
        db_pool_acquisition_timeout: 10,
        db_pool_max_lifetime: 1_800,
        db_pool_max_idletime: 30,
        db_pool: null,
      },
      realtime: {
        private_only: false,
        max_concurrent_users: 200,
        max_events_per_second: 100,
        max_bytes_per_second: 100_000,
        max_channels_per_client: 100,
        max_joins_per_second: 100,
        max_presence_events_per_second: 1_000,
        max_payload_size_in_kb: 3_000,
        presence_enabled: false,
        suspend: false,
        connection_pool: 2,
        postgres_changes_pool: null,
      },
      storage: {
        file_size_limit: 52_428_800,
        features: {
          image_transformation: FEATURE,
          s3_protocol: FEATURE,
          purge_cache: FEATURE,
          iceberg_catalog: { ...FEATURE, max_namespaces: 0, max_tables: 0, max_catalogs: 0 },
          vector_buckets: { ...FEATURE, max_buckets: 0, max_indexes: 0 },
        },
        capabilities: { list_v2: true, iceberg_catalog: false, object_versioning: false },
        upstream_target: 'main',
        migration_version: null,
        database_pool_mode: 'recycled',
      },
    })
    const { body: v1 } = await organization.owner.get(`/v1/projects/${ref}/config/auth`)
    const wherever = (value: unknown) => Object.keys(v1).filter((name) => v1[name] === null && auth[name] === value)
    expect({
      ...auth,
      ...Object.fromEntries([...wherever(''), ...wherever(false)].map((name) => [name, null])),
    }).toEqual(v1)
    expect(wherever(false)).toEqual(['external_google_skip_nonce_check', 'nimbus_oauth_email_optional'])
    expect(Object.values(auth)).not.toContain(null)
  })

  it('returns the fields that were set, by any endpoint', async () => {
    const { owner } = organization
    const patch = (path: string, body: object) => owner.patch(`/v1/projects/${ref}/config/${path}`, body)
    const replies = [
      await owner.put(`/v1/projects/${ref}/config/database/postgres`, { work_mem: '8MB', max_connections: 20 }),
      await patch('database/pooler', { default_pool_size: 7, pool_mode: 'transaction' }),
      await owner.put(`/v1/projects/${ref}/ssl-enforcement`, { requestedConfig: { database: true } }),
      await patch('auth', { external_x_secret: 'sssh', jwt_exp: 77, sessions_tags: 'a' }),
      await patch('storage', { fileSizeLimit: 5 }),
      await owner.patch(`/v1/projects/${ref}/postgrest`, { max_rows: 9, db_pool: 4 }),
      await patch('realtime', { suspend: true, max_events_per_second: 3 }),
    ]
    expect(replies.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200, 200, 204])
    expect(await config()).toMatchObject({
      database: { ssl_enforced: true, postgres_settings: { work_mem: '8MB', max_connections: 20 } },
      pooler: { default_pool_size: 7, pool_mode: 'transaction' },
      auth: {
        external_x_secret: createHmac('sha256', ref).update('sssh').digest('hex'),
        jwt_exp: 77,
        sessions_tags: 'a',
      },
      api: { max_rows: 9, db_pool: 4, db_pool_max_lifetime: 1_800, db_schema: 'public,graphql_public' },
      realtime: { suspend: true, max_events_per_second: 3, max_joins_per_second: 100 },
      storage: { file_size_limit: 5 },
    })
  })

  it('requires the right to read each part', async () => {
    const scopes = ['auth:read', 'database:read', 'projects:read', 'storage:read'] as const
    const [developer, reader, reads, other] = await Promise.all([
      newMember(organization, 'developer'),
      newMember(organization, 'read-only'),
      newApp(organization, [...scopes]),
      newOrganization(),
    ])
    const incomplete = await Promise.all(
      scopes.map((missing) =>
        newApp(
          organization,
          scopes.filter((scope) => scope !== missing),
        ),
      ),
    )
    const callers = [developer, reader, reads.caller, other.owner, ...incomplete.map(({ caller }) => caller)]
    const replies = await Promise.all(callers.map((caller) => caller.get(`/v2/projects/${ref}/config`)))
    expect(replies.map(({ status }) => status)).toEqual([200, 200, 200, 404, 403, 403, 403, 403])
  })
})
