import { once } from 'node:events'
import { request } from 'node:http'
import { afterAll, beforeAll, expect, it, vi } from 'vitest'
import { startBucketProxy } from '../../support/bucket-proxy.ts'
import { invocationsOf, putFunction, type Stores } from '../../support/functions.ts'
import { WAIT } from '../../support/machine.ts'
import { serveLikeStart } from '../../support/serve.ts'
import { type Installation, startInstallation } from '../../support/storage-installation.ts'

let proxy: Awaited<ReturnType<typeof startBucketProxy>>
let installation: Installation
let ref: string
let base: string
let stores: Stores
beforeAll(async () => {
  let endpoint = ''
  installation = await startInstallation({
    serve: serveLikeStart,
    async proxyTo(given) {
      endpoint = given
      proxy = await startBucketProxy(given)
      return proxy.endpoint
    },
  })
  const storage = await installation.newStorage()
  ref = storage.ref
  base = new URL(`/p/${ref}/functions/v1/`, storage.url).href
  const { config } = installation.ctxAt()
  const { S3_BUCKET: bucket, S3_ACCESS_KEY_ID: accessKeyId, S3_SECRET_ACCESS_KEY: secretAccessKey } = config
  const s3 = { endpoint, bucket, accessKeyId, secretAccessKey }
  stores = { db: installation.control, encryptionKey: config.ENCRYPTION_KEY, s3 }
})
afterAll(async () => {
  await installation.stop()
  await proxy.close()
})

async function deploy(body: string, top = '') {
  const { slug, id } = await putFunction(ref, `${top}\nDeno.serve(async (request) => { ${body} })`, {}, stores)
  return { url: base + slug, id }
}

const rowsOf = (id: string, count: number) =>
  vi.waitFor(async () => {
    const rows = await invocationsOf(id, stores)
    expect(rows).toHaveLength(count)
    return rows
  }, WAIT)

/** Starts a call whose caller disconnects before the answer. */
async function begin(url: string) {
  const call = request(url, { agent: false })
  call.on('error', () => {})
  call.end()
  await once(call, 'finish')
  return () => call.destroy()
}

it('all callers that wait for a function whose code cannot be read get an error that does not blame them', async () => {
  const { url, id } = await deploy(`return new Response('x')`)
  await proxy.close()
  const answers = await Promise.all(
    Array.from({ length: 10 }, async () => {
      const response = await fetch(url)
      return [response.status, ((await response.json()) as { code: string }).code]
    }),
  )
  expect(answers).toEqual(answers.map(() => [503, 'SERVICE_UNAVAILABLE']))
  await proxy.open()
  expect((await fetch(url)).status).toBe(200)
  const messages = (await rowsOf(id, 11)).flatMap(({ console }) => console.map(({ message }) => message))
  expect(new Set(messages)).toEqual(new Set(['the function could not be loaded']))
})

it('a first caller that disconnects while the code is read affects nobody else', async () => {
  const { url, id } = await deploy(`return new Response('x')`)
  const carried = proxy.carried()
  const release = proxy.hold()
  const leave = await begin(url)
  await vi.waitFor(() => expect(proxy.carried()).toBeGreaterThan(carried), WAIT)
  leave()
  const second = fetch(url)
  // The function's turn comes once the installation knows that the first caller has left.
  await fetch(`${base}f-none`)
  release()
  expect((await second).status).toBe(200)
  expect((await fetch(url)).status).toBe(200)
  expect((await rowsOf(id, 3)).map(({ status }) => status)).toEqual([200, 200, 200])
})

it('a first caller that disconnects during the start affects nobody else', async () => {
  const top =
    'export const start = async () => { await new Promise((resolve) => setTimeout(resolve, 1_500)); return await import("./late.js") }'
  const { slug } = await putFunction(
    ref,
    top,
    { modules: { 'late.js': { js: `Deno.serve(() => new Response('x'))` } } },
    stores,
  )
  const url = base + slug
  const carried = proxy.carried()
  const leave = await begin(url)
  await vi.waitFor(() => expect(proxy.carried()).toBeGreaterThan(carried), WAIT)
  // The program starts as soon as it is read.
  await fetch(`${base}f-none`)
  leave()
  expect((await fetch(url, { signal: AbortSignal.timeout(20_000) })).status).toBe(200)
})
