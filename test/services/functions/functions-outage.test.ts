import { eq } from 'drizzle-orm'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { removeUnusedDeployments } from '../../../src/management/programs/functions/remove-deployments.ts'
import { functionDeployments } from '../../../src/model/tables/index.ts'
import { openStore } from '../../../src/platform/blobs/store.ts'
import type { Caller } from '../../support/api.ts'
import { startBucketProxy } from '../../support/bucket-proxy.ts'
import { deploy, download, HELLO, tryDeploy } from '../../support/deploys.ts'
import { createProject } from '../../support/projects.ts'
import { serveLikeStart } from '../../support/serve.ts'
import { type Installation, startInstallation } from '../../support/storage-installation.ts'

let proxy: Awaited<ReturnType<typeof startBucketProxy>>
let installation: Installation
let owner: Caller
let ref: string
beforeAll(async () => {
  installation = await startInstallation({
    serve: serveLikeStart,
    async proxyTo(endpoint) {
      proxy = await startBucketProxy(endpoint)
      return proxy.endpoint
    },
  })
  const organization = await installation.newOrganization()
  owner = organization.owner
  ref = await createProject(organization)
})
afterAll(async () => {
  await installation.stop()
  await proxy.close()
})

const tomorrow = () => installation.ctxAt(new Date(Date.now() + 25 * 60 * 60 * 1000))
const rows = () =>
  installation.control.select().from(functionDeployments).where(eq(functionDeployments.projectRef, ref))
const count = async () =>
  (await openStore(installation.ctxAt()).list(`projects/${ref}/functions/`, { count: 1_000 })).blobs.length

it('deployments are refused while the bucket is unreachable, and leave nothing once it is back', async () => {
  await deploy(owner, ref)
  await proxy.close()
  const away = { status: 503, body: { message: expect.stringContaining('The bucket cannot be reached') } }
  expect(await tryDeploy(owner, ref, { files: { 'index.ts': 'export default 2' } })).toMatchObject(away)
  expect(await owner.get(`/v1/projects/${ref}/functions/hello/body`)).toMatchObject(away)
  expect((await owner.get(`/v1/projects/${ref}/functions`)).body).toMatchObject([{ version: 1 }])
  await expect(removeUnusedDeployments(tomorrow())).rejects.toThrow('2 keys were not removed')
  expect(await rows()).toHaveLength(2)
  await proxy.open()
  expect(await download(owner, ref, 'hello')).toEqual({ 'source/index.ts': HELLO })
  expect(await deploy(owner, ref, { files: { 'index.ts': 'export default 3' } })).toMatchObject({ version: 2 })
  expect([(await rows()).length, await count()]).toEqual([3, 4])
  await removeUnusedDeployments(tomorrow())
  expect([(await rows()).length, await count()]).toEqual([1, 2])
  expect(await download(owner, ref, 'hello')).toEqual({ 'source/index.ts': 'export default 3' })
})

it('a bundle can be activated only once its files are in the bucket', async () => {
  const bundling = { slug: 'bundled', query: '&bundleOnly=true' }
  await proxy.close()
  expect(await tryDeploy(owner, ref, bundling)).toMatchObject({ status: 503 })
  await proxy.open()
  const failed = (await rows()).find(({ slug }) => slug === 'bundled')
  const update = [
    { id: failed?.id, slug: 'bundled', name: 'bundled', status: 'ACTIVE', version: 1, ezbr_sha256: failed?.sha256 },
  ]
  const message = expect.stringContaining('body.0.ezbr_sha256: must be the digest of a bundle')
  expect(await owner.put(`/v1/projects/${ref}/functions`, update)).toMatchObject({ status: 400, body: { message } })
  expect(await deploy(owner, ref, bundling)).toMatchObject({ ezbr_sha256: failed?.sha256 })
  expect(await owner.put(`/v1/projects/${ref}/functions`, update)).toMatchObject({ status: 200 })
  expect(await download(owner, ref, 'bundled')).toEqual({ 'source/index.ts': HELLO })
})

it('source whose download is interrupted is read once more, and then refused with an error', async () => {
  const path = `/v1/projects/${ref}/functions/hello/body`
  await deploy(owner, ref)
  proxy.cut(1)
  expect(await owner.get(path)).toMatchObject({ status: 200 })
  proxy.cut(2)
  const message = expect.stringContaining('The bucket cannot be reached')
  expect(await owner.get(path)).toMatchObject({ status: 503, body: { message } })
  expect(await download(owner, ref, 'hello')).toEqual({ 'source/index.ts': HELLO })
})
