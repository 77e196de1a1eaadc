import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { brotliCompressSync, gzipSync } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { baseUrl, newMember, newOrganization, type TestOrganization } from '../../support/api.ts'
import { putFunction } from '../../support/functions.ts'
import { newStorage, type TestStorage } from '../../support/storage.ts'
import { workerOf } from '../../support/workers.ts'

const TEXT = 'grün '.repeat(1_000)
const PACKED = { gzip: gzipSync(TEXT), br: brotliCompressSync(TEXT) }

let organization: TestOrganization
let project: TestStorage
let upstream: Server
let upstreamUrl: string
beforeAll(async () => {
  organization = await newOrganization()
  project = await newStorage(organization)
  upstream = createServer(({ url = '' }, response) => {
    const encoding = url.slice(1) as keyof typeof PACKED
    response.writeHead(200, { 'content-encoding': encoding, 'content-length': PACKED[encoding].length, 'x-own': 'yes' })
    response.end(PACKED[encoding])
  }).listen(0, '127.0.0.1')
  await once(upstream, 'listening')
  upstreamUrl = `http://127.0.0.1:${(upstream.address() as AddressInfo).port}`
})
afterAll(() => upstream.close())

const SURROUNDINGS = () => `
  const UPSTREAM = ${JSON.stringify(upstreamUrl)}
  const PACKED = { gzip: Uint8Array.from(atob('${PACKED.gzip.toString('base64')}'), (char) => char.charCodeAt(0)),
    br: Uint8Array.from(atob('${PACKED.br.toString('base64')}'), (char) => char.charCodeAt(0)) }
  const packed = (encoding) => ({ headers: { 'content-encoding': encoding, 'x-own': 'yes' } })
  const streamOf = (bytes) => new ReadableStream({ start(controller) { controller.enqueue(bytes); controller.close() } })`

const newWorker = async () => workerOf(await newMember(organization, 'developer'), project.ref)
const calling = async (program: string) => {
  const { slug } = await putFunction(project.ref, `${SURROUNDINGS()}\n${program}`)
  return fetch(new URL(`/p/${project.ref}/functions/v1/${slug}`, baseUrl))
}
const answering = (body: string) => calling(`Deno.serve(async (request) => { ${body} })`)

async function expectText(response: Response) {
  expect([response.status, response.headers.get('x-own'), await response.text()]).toEqual([200, 'yes', TEXT])
}

describe('an answer that the function has compressed', () => {
  it.each([
    ['bytes in gzip', `new Response(PACKED.gzip, packed('gzip'))`],
    ['bytes in br', `new Response(PACKED.br, packed('br'))`],
    ['a blob', `new Response(new Blob([PACKED.gzip]), packed('gzip'))`],
    ['a stream of its own', `new Response(streamOf(PACKED.gzip), packed('gzip'))`],
    [
      'a stream of the runtime',
      `new Response(new Blob([${JSON.stringify(TEXT)}]).stream().pipeThrough(new CompressionStream('gzip')), packed('gzip'))`,
    ],
    [
      'a copy',
      `(() => { const made = new Response(PACKED.gzip, packed('gzip')); return new Response(made.body, made) })()`,
    ],
  ])('is sent unchanged: %s', async (_, response) => {
    await expectText(await answering(`return ${response}`))
  })

  it('is sent unchanged from onError, and from an exported handler', async () => {
    const failing = `throw new Error('failed')`
    const onError = `onError: () => new Response(PACKED.gzip, packed('gzip'))`
    await expectText(await calling(`Deno.serve({ handler() { ${failing} }, ${onError} })`))
    await expectText(await calling(`export default { fetch: () => new Response(PACKED.gzip, packed('gzip')) }`))
  })

  it("is sent unchanged from a Node server, which passes on another server's compressed answer", async () => {
    const worker = await newWorker()
    await worker.ship({
      'index.js': `import { createServer, get } from 'node:http'
        createServer((_, response) => get('${upstreamUrl}/gzip', (incoming) => {
          response.writeHead(200, incoming.headers)
          incoming.pipe(response)
        })).listen(3000)`,
    })
    await expectText(await worker.call())
  })
})

describe('an answer that another server has compressed', () => {
  it.each(['gzip', 'br'])('arrives decompressed, with the headers of Deno: %s', async (encoding) => {
    const response = await answering(`const fetched = await fetch(UPSTREAM + '/${encoding}')
      const { url, redirected, headers } = fetched.clone()
      return Response.json([url, redirected, headers.get('content-encoding'), headers.get('content-length'), fetched.url, await fetched.text()])`)
    const url = `${upstreamUrl}/${encoding}`
    expect(await response.json()).toEqual([url, false, null, null, url, TEXT])
  })

  it.each([
    ['at once', 'return fetched'],
    ['as a body of its own', `return new Response(fetched.body, fetched)`],
    ['as text', 'return new Response(await fetched.text(), fetched)'],
    ['as bytes', 'return new Response(await fetched.arrayBuffer(), { headers: fetched.headers })'],
    ['through a stream', 'return new Response(fetched.body.pipeThrough(new TransformStream({})), fetched)'],
  ])('can be passed on %s', async (_, passing) => {
    await expectText(await answering(`const fetched = await fetch(UPSTREAM + '/gzip'); ${passing}`))
    await expectText(await answering(`const fetched = await fetch(UPSTREAM + '/br'); ${passing}`))
  })

  it('can be compressed again', async () => {
    await expectText(
      await answering(`const fetched = await fetch(UPSTREAM + '/gzip')
        return new Response(fetched.body.pipeThrough(new CompressionStream('gzip')), packed('gzip'))`),
    )
  })

  it('can be read as it was sent', async () => {
    const fetched = `await fetch(UPSTREAM + '/gzip', { encodeResponseBody: 'manual' })`
    await expectText(await answering(`const { body, headers } = ${fetched}; return new Response(body, { headers })`))
  })
})

describe("a worker's exported handler", () => {
  it('is encoded by the runtime, as in the runtime that it was written for', async () => {
    const worker = await newWorker()
    await worker.ship({
      'index.js': `${SURROUNDINGS()}
        export default { async fetch(request) {
          if (request.url.endsWith('/own')) return new Response(${JSON.stringify(TEXT)}, packed('gzip'))
          const fetched = await fetch(UPSTREAM + '/gzip')
          return new Response(await fetched.text(), { headers: fetched.headers })
        } }`,
    })
    await expectText(await worker.call('/own'))
    await expectText(await worker.call())
  })
})
