import { and, count, eq, isNotNull } from 'drizzle-orm'
import { beforeAll, expect, it, vi } from 'vitest'
import { functionDeployments, functionSecrets, functions } from '../../../src/model/tables/index.ts'
import { type Caller, control, newOrganization, type TestOrganization, tick } from '../../support/api.ts'
import { deploy, download, HELLO, keysOf, removeKeys, tryDeploy } from '../../support/deploys.ts'
import { newProject, untilGone } from '../../support/projects.ts'
import { WAIT_MS } from '../../support/wait.ts'

const HOUR_MS = 60 * 60 * 1000
const WAIT = { timeout: WAIT_MS, interval: 200 }

let organization: TestOrganization
let owner: Caller
let ref: string
beforeAll(async () => {
  organization = await newOrganization()
  owner = organization.owner
  ref = await newProject(organization)
})

const age = (hours: number) =>
  control
    .update(functionDeployments)
    .set({ unusedSince: new Date(Date.now() - hours * HOUR_MS) })
    .where(and(eq(functionDeployments.projectRef, ref), isNotNull(functionDeployments.unusedSince)))

const deploymentsOf = (project: string) =>
  control.select().from(functionDeployments).where(eq(functionDeployments.projectRef, project))

it('bytes that no function used for a day are removed, and used or younger ones stay', async () => {
  await deploy(owner, ref, { slug: 'kept' })
  await deploy(owner, ref, { slug: 'replaced' })
  await deploy(owner, ref, { slug: 'replaced', files: { 'index.ts': 'export default 2' } })
  await deploy(owner, ref, { slug: 'deleted' })
  await owner.delete(`/v1/projects/${ref}/functions/deleted`)
  const bundle = await deploy(owner, ref, { slug: 'bundled', query: '&bundleOnly=true' })
  expect(await keysOf(ref)).toHaveLength(10)
  await age(23.5)
  await tick()
  expect(await keysOf(ref)).toHaveLength(10)
  // The bundle may be gone before it is deployed.
  expect(await owner.put(`/v1/projects/${ref}/functions`, [bundle])).toMatchObject({
    status: 400,
    body: { message: expect.stringContaining('body.0.ezbr_sha256: must be the digest of a bundle') },
  })
  await age(24.1)
  const fresh = await deploy(owner, ref, { slug: 'bundled', query: '&bundleOnly=true' })
  await vi.waitFor(async () => {
    await tick()
    expect(await deploymentsOf(ref)).toHaveLength(3)
  }, WAIT)
  expect(await keysOf(ref)).toHaveLength(6)
  expect(await owner.put(`/v1/projects/${ref}/functions`, [fresh])).toMatchObject({ status: 200 })
  expect(await download(owner, ref, 'kept')).toEqual({ 'source/index.ts': HELLO })
  expect(await download(owner, ref, 'replaced')).toEqual({ 'source/index.ts': 'export default 2' })
})

it('the oldest of more than 1,000 unused deployments of a project are removed early', async () => {
  const own = await newProject(organization)
  const bundle = (slug: string) => deploy(owner, own, { slug, query: '&bundleOnly=true' })
  const [oldest, second] = [await bundle('oldest'), await bundle('second')]
  const at = new Date()
  const rows = Array.from({ length: 998 }, (_, n) => ({ projectRef: own, slug: `f-${n}`, sha256: `${n}` }))
  await control
    .insert(functionDeployments)
    .values(rows.map((row) => ({ ...row, entrypoint: 'index.ts', createdAt: at, unusedSince: at })))
  const newest = await bundle('newest')
  expect(await owner.put(`/v1/projects/${own}/functions`, [oldest])).toMatchObject({ status: 400 })
  expect(await owner.put(`/v1/projects/${own}/functions`, [second, newest])).toMatchObject({ status: 200 })
  await vi.waitFor(async () => {
    await tick()
    expect(await deploymentsOf(own)).toHaveLength(1_000)
  }, WAIT)
  expect(await keysOf(own)).toHaveLength(4)
})

it('a source that is missing from the bucket is reported, and a new deployment fixes it', async () => {
  const own = await newProject(organization)
  await deploy(owner, own)
  await removeKeys(await keysOf(own))
  expect(await owner.get(`/v1/projects/${own}/functions/hello/body`)).toMatchObject({
    status: 404,
    body: { message: 'The source of the function no longer exists: deploy the function again' },
  })
  await deploy(owner, own)
  expect(await download(owner, own, 'hello')).toEqual({ 'source/index.ts': HELLO })
})

it('a deleted project leaves no bytes, and a project being deleted receives none', async () => {
  const own = await newProject(organization)
  await deploy(owner, own)
  await deploy(owner, own)
  await owner.post(`/v1/projects/${own}/secrets`, [{ name: 'A', value: 'b' }])
  expect(await owner.delete(`/v1/projects/${own}`)).toMatchObject({ status: 200 })
  expect((await tryDeploy(owner, own)).status).toBe(409)
  expect((await owner.post(`/v1/projects/${own}/secrets`, [{ name: 'A', value: 'c' }])).status).toBe(409)
  await untilGone(owner, own)
  expect(await keysOf(own)).toEqual([])
  for (const table of [functions, functionDeployments, functionSecrets]) {
    expect(await control.select({ count: count() }).from(table).where(eq(table.projectRef, own))).toEqual([
      { count: 0 },
    ])
  }
})
