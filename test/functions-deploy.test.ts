import { beforeAll, describe, expect, it } from 'vitest'
import { newOrganization, type TestOrganization } from './api.ts'
import { deploy, tryDeploy } from './functions.ts'
import { createProject } from './projects.ts'

let organization: TestOrganization
let ref: string
beforeAll(async () => {
  organization = await newOrganization()
  ref = await createProject(organization)
})

describe('POST /v1/projects/{ref}/functions/deploy', () => {
  it('makes a function, and with each deploy a version of it', async () => {
    const { owner } = organization
    const made = await deploy(owner, ref)
    expect(made).toEqual({
      id: expect.stringMatching(/^[\da-f-]{36}$/),
      slug: 'hello',
      name: 'hello',
      status: 'ACTIVE',
      version: 1,
      created_at: expect.any(Number),
      updated_at: made.created_at,
      verify_jwt: true,
      import_map: false,
      entrypoint_path: `file:///tmp/user_fn_${ref}_${made.id}_1/source/index.ts`,
      ezbr_sha256: expect.stringMatching(/^[\da-f]{64}$/),
    })
    expect(made.created_at).toBeGreaterThan(Date.now() - 60_000)
    const files = { 'src/a b.ts': 'import "./deps.json"\n', 'src/deps.json': '{}', 'deno.json': '{}' }
    const metadata = { import_map_path: 'deno.json', verify_jwt: false, name: 'Hello' }
    const again = await deploy(owner, ref, { files, metadata })
    expect(again).toMatchObject({
      id: made.id,
      name: 'Hello',
      version: 2,
      created_at: made.created_at,
      verify_jwt: false,
      import_map: true,
      entrypoint_path: `file:///tmp/user_fn_${ref}_${made.id}_2/source/src/a%20b.ts`,
      import_map_path: `file:///tmp/user_fn_${ref}_${made.id}_2/source/deno.json`,
    })
    expect(again.ezbr_sha256).not.toBe(made.ezbr_sha256)
    expect(await deploy(owner, ref)).toMatchObject({ version: 3, name: 'Hello', verify_jwt: false, import_map: false })
  })

  it('tells file, line and column of what cannot be bundled', async () => {
    const files = { 'index.ts': 'const a = 1\nconst = 2\n' }
    const reply = await tryDeploy(organization.owner, ref, { slug: 'broken', files })
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining('index.ts:2:7: Expected') } })
  })
})
